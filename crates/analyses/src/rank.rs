//! Where do the samples land? Functions and lines by their share, on a core or waiting.
//!
//! What is counted:
//! - *native self*: the sample's innermost frame of machine code (program, kernel, interpreter, JIT), looking
//!   through Lua frames. Share of all samples of the kind.
//! - *Lua self*: the sample's innermost Lua frame, whatever C code it has called since: a table look-up in C
//!   that a Lua line asks for is self of that Lua function. Share of the samples with Lua context. How much of it is C, and how much
//!   the function's own bytecode (interpreted or compiled), stands beside it.
//! - *category*: what sort of code the sample was in ([`crate::CategoryRow`]). Share of all samples; the shares sum to 1.
//! - *per request*: the CPU time that the samples stand for, divided by the requests that were counted beside them.
//! - *inclusive*: the sample holds the function anywhere; recursion counts once. Same denominators.
//! - A function is what [`throughline_profile::Function`] says; a line is a function and a line in it. The line of
//!   a built-in function (`string.find`) is the Lua line that called it.
//!
//! Samples weigh 1, waits weigh nanoseconds; the two are in different reports and never summed. Waits for work
//! (idle) and time in the run queue after preemption are told apart from blocked time, with totals of their own.
//!
//! Pure: takes a profile, reads no clock and no file. [`rank`] computes, [`render`] writes text.
//!
//! Ways in which the answer may mislead:
//! - a share is where samples landed, not what removing the code is worth;
//! - shares of Lua rows and of native rows have different denominators: they must not be subtracted or divided;
//! - a small share may be paid often: the rank does not know how many calls a request makes;
//! - cost per request is an average over all requests of all targets, and leaves out lost samples;
//! - code that is inlined into a JIT trace appears as the function that the recorder could see;
//! - a symbol without a row may still have run between samples.

mod off_cpu;
mod on_cpu;
mod rows;
mod text;

use serde::Serialize;
use throughline_evidence::Boundary;
use throughline_profile::{CaptureKind, Ledger, Measure, Profile, Sample};

pub use off_cpu::{OffCpuDenominators, OffCpuRank, WaitRow, Waits, WakerRow};
pub use on_cpu::{OnCpuDenominators, OnCpuRank};
pub use rows::{
    InC, LineRow, LuaRow, NativeRow, Omitted, SampleCost, ShareOf, WaitCost, WithoutLua,
};
pub use text::render;

pub(crate) use on_cpu::is_in_vm;
pub(crate) use rows::place;

use crate::share;

/// Fewest on-CPU samples that are ranked. At 100 samples the 95 % interval of a share is up to 10 points to
/// either side (1 / sqrt(n)); below, the order of the rows is noise.
pub const FEWEST_SAMPLES: u64 = 100;

/// Fewest waits that are ranked. Every wait within the capture's limits is recorded, not one in so many: a
/// single one is a fact and has no sampling error.
pub const FEWEST_WAITS: u64 = 1;

/// What to rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// Running or waiting.
    pub kind: CaptureKind,
    /// By which share the rows are ordered.
    pub by: RankBy,
    /// Most rows of each list; `None` for all.
    pub limit: Option<usize>,
    /// Only samples of this process; `None` for all recorded ones.
    pub pid: Option<u32>,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankBy {
    /// By self weight: where samples land.
    SelfWeight,
    /// By inclusive weight: under what they land.
    Inclusive,
}

/// The ranking, as `rank --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RankReport {
    /// Of running threads.
    OnCpu(OnCpuRank),
    /// Of waiting threads.
    OffCpu(OffCpuRank),
}

/// What a report is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heading {
    /// Name and version of the document.
    pub schema: &'static str,
    /// Version of the tool that made it.
    pub tool: &'static str,
    /// Number of the capture in its case.
    pub capture: u32,
    /// Running or waiting.
    pub kind: CaptureKind,
    /// Length of the recording in s.
    pub seconds: f64,
    /// Sampling rate in Hz of the capture; 0 without on-CPU sampling.
    pub rate_hz: u32,
    /// Whether the recording ended by itself and in full.
    pub complete: bool,
    /// The one process that was looked at; `null` for all recorded ones.
    pub pid: Option<u32>,
    /// Why `pid` is `null`.
    pub pid_reason: Option<&'static str>,
    /// The order of the rows.
    pub by: RankBy,
}

/// Why nothing was ranked (exit code 3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEnoughData {
    /// The capture did not look for this kind.
    #[error("the capture has no {} samples: it was recorded without them", kind_name(*.0))]
    NotRecorded(CaptureKind),
    /// Too few of them.
    #[error(
        "not enough data: {found} {} samples, {needed} needed; record for longer, at a higher rate, or under load",
        kind_name(*kind)
    )]
    TooFew {
        /// Running or waiting.
        kind: CaptureKind,
        /// How many there are.
        found: u64,
        /// The least that is ranked.
        needed: u64,
    },
    /// No sample of the process that was asked for.
    #[error("not enough data: the capture has no {} sample of process {pid}", kind_name(*kind))]
    NoSuchProcess {
        /// Running or waiting.
        kind: CaptureKind,
        /// The process.
        pid: u32,
    },
}

fn kind_name(kind: CaptureKind) -> &'static str {
    match kind {
        CaptureKind::OnCpu => "on-CPU",
        CaptureKind::OffCpu => "off-CPU",
    }
}

/// Ranks the functions and lines of a profile.
///
/// # Errors
/// When the profile has too few samples of this kind to say anything.
pub fn rank(profile: &Profile, plan: RankPlan) -> Result<RankReport, NotEnoughData> {
    check_enough(profile, plan)?;
    Ok(match plan.kind {
        CaptureKind::OnCpu => RankReport::OnCpu(on_cpu::rank(profile, plan)),
        CaptureKind::OffCpu => RankReport::OffCpu(off_cpu::rank(profile, plan)),
    })
}

fn check_enough(profile: &Profile, plan: RankPlan) -> Result<(), NotEnoughData> {
    let kind = plan.kind;
    let found = samples_of(profile, plan).count() as u64;
    let needed = match kind {
        CaptureKind::OnCpu => FEWEST_SAMPLES,
        CaptureKind::OffCpu => FEWEST_WAITS,
    };
    match (found, plan.pid) {
        (found, _) if found >= needed => Ok(()),
        (0, _) if !profile.capture.kinds.contains(&kind) => Err(NotEnoughData::NotRecorded(kind)),
        (0, Some(pid)) => Err(NotEnoughData::NoSuchProcess { kind, pid }),
        (found, _) => Err(NotEnoughData::TooFew {
            kind,
            found,
            needed,
        }),
    }
}

/// The samples that the plan is about, with their measure and weight.
fn samples_of(profile: &Profile, plan: RankPlan) -> impl Iterator<Item = (&Sample, Measure, u64)> {
    profile.samples.iter().filter_map(move |sample| {
        let (measure, weight) = Measure::of(sample.kind);
        let wanted = (measure == Measure::OnCpu) == (plan.kind == CaptureKind::OnCpu)
            && plan
                .pid
                .is_none_or(|pid| profile.threads.get(sample.thread).pid == pid);
        wanted.then_some((sample, measure, weight))
    })
}

fn heading(profile: &Profile, plan: RankPlan) -> Heading {
    Heading {
        schema: "rank/1",
        tool: env!("CARGO_PKG_VERSION"),
        capture: profile.capture.number,
        kind: plan.kind,
        seconds: profile.capture.duration.as_secs_f64(),
        rate_hz: profile.capture.rate_hz,
        complete: profile.capture.complete,
        pid: plan.pid,
        pid_reason: plan.pid.is_none().then_some("all recorded processes"),
        by: plan.by,
    }
}

/// The ledger of the running threads.
pub(crate) fn on_cpu_ledger(profile: &Profile) -> Ledger {
    ledger(profile, CaptureKind::OnCpu)
}

/// The ledger of the kind; the common one where a profile keeps only that (a converted foreign file).
fn ledger(profile: &Profile, kind: CaptureKind) -> Ledger {
    let own = match kind {
        CaptureKind::OnCpu => &profile.capture.ledger_on_cpu,
        CaptureKind::OffCpu => &profile.capture.ledger_off_cpu,
    };
    if own.taken == 0 {
        profile.ledger.clone()
    } else {
        own.clone()
    }
}

fn boundaries(texts: &[&str]) -> Vec<Boundary> {
    texts
        .iter()
        .map(|&text| Boundary(text.to_owned()))
        .collect()
}
