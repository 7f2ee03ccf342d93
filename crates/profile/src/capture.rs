//! What was recorded, how, and for how long.

use serde::{Deserialize, Serialize};
use throughline_units::Nanos;

use crate::Ledger;

/// Facts about one capture as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// Number of the capture in its case, from 1; 0 before it is stored.
    pub number: u32,
    /// What was sampled.
    pub kinds: Vec<CaptureKind>,
    /// Sampling rate of each thread's CPU time, in Hz; 0 without on-CPU sampling.
    pub rate_hz: u32,
    /// Length of the recording.
    pub duration: Nanos,
    /// Wall-clock time at the start, in ns since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// Host name, as `uname` tells it.
    pub host: String,
    /// Kernel release, as `uname` tells it.
    pub kernel: String,
    /// Version of the tool that recorded.
    pub tool: String,
    /// Off-CPU stretches shorter than this were not kept, in ns.
    pub min_block_ns: u64,
    /// Off-CPU stretches longer than this were not kept, in ns.
    pub max_block_ns: u64,
    /// Processes recorded.
    pub targets: Vec<Target>,
    /// Mean time of the BPF program per on-CPU sample, in ns; `None` when none was taken.
    pub bpf_ns_per_sample_mean: Option<f64>,
    /// Requests that the targets finished during the recording.
    pub requests: RequestCount,
    /// CPU time of the recorder itself.
    pub recorder_cpu: Nanos,
    /// Ledger of the on-CPU samples alone.
    pub ledger_on_cpu: Ledger,
    /// Ledger of the off-CPU samples alone.
    pub ledger_off_cpu: Ledger,
    /// Whether it ended by itself and in full; false while running, and for ever after a kill.
    pub complete: bool,
    /// Things to know when reading the numbers (lockstep, truncated captures, missing symbols).
    pub warnings: Vec<String>,
}

/// How many requests the targets took or finished while they were recorded, or why nobody counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestCount {
    /// Counted.
    Counted {
        /// Requests finished between the first and the last moment of the recording, by all targets together.
        count: u64,
        /// What counted: `memory:ngx_stat_requests`, `uprobe:ngx_http_free_request`, or the address that was asked.
        source: String,
    },
    /// Not counted.
    NotCounted {
        /// Why, as a sentence without a full stop.
        reason: String,
    },
}

impl Default for RequestCount {
    fn default() -> Self {
        Self::NotCounted {
            reason: Self::UNKNOWN_REASON.to_owned(),
        }
    }
}

impl RequestCount {
    /// Why a capture that says nothing has no count.
    pub const UNKNOWN_REASON: &str = "requests were not counted when this was recorded";

    /// The count, if there is one.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Counted { count, .. } => Some(*count),
            Self::NotCounted { .. } => None,
        }
    }
}

/// What a capture sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureKind {
    /// Running threads, by a clock.
    OnCpu,
    /// Waiting threads, by the scheduler.
    OffCpu,
}

/// One process that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Process id in the recorder's namespace.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Path of its executable.
    pub exe: String,
    /// Lua VMs found in it.
    pub lua_vms: Vec<LuaVm>,
    /// Why a Lua library in it cannot be read, when one cannot.
    pub lua_unreadable: Option<String>,
    /// CPU time by the scheduler's account during the capture, in ns; `None` when it could not be read.
    pub cpu_ns: Option<u64>,
    /// When it joined, since the capture began.
    pub joined: Nanos,
    /// When it ended, if it did.
    pub ended: Option<Nanos>,
}

/// One Lua VM of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LuaVm {
    /// Address of its `global_State`.
    pub global_state: u64,
    /// Version string of its library, as far as it is known.
    pub version: String,
    /// Name of the layout by which it is read.
    pub layout: String,
    /// Whether it is a GC64 build.
    pub gc64: bool,
}
