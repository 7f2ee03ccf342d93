//! What was seen in a window. Every duration is nanoseconds; every share is of one core.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    CoreActivity, CoreFrequency, CpuSet, Machine, MemoryActivity, NetworkActivity, Pressure,
    Process, Reading, SoftirqCount,
};

/// Everything read in one window.
#[derive(Debug, Clone)]
pub struct Observation {
    /// What the caller asked for.
    pub asked_ns: u64,
    /// What passed between the first and the last reading of the machine's counters.
    pub window_ns: u64,
    /// How many times the threads were looked at between start and end, to see which core they were on.
    pub looks: u32,
    /// Why the threads were read only at start and end, if so.
    pub looks_limited: Option<String>,
    /// The processes the question is about.
    pub targets: Vec<ProcessActivity>,
    /// The processes the targets call.
    pub upstreams: Peers,
    /// The processes that call the targets.
    pub load_generators: Peers,
    /// Every process that used CPU in the window, the above included, busiest first.
    pub tenants: Vec<Tenant>,
    /// CPU of processes that started and ended between two looks is in no tenant; it is in the cores.
    pub cores: Reading<Vec<CoreActivity>>,
    /// Stalls, machine-wide.
    pub pressure: Pressure,
    /// Soft interrupts by kind.
    pub softirqs: Reading<Vec<SoftirqCount>>,
    /// The network namespace of the first target.
    pub network: Reading<NetworkActivity>,
    /// Clock of each core at the end.
    pub frequency: Reading<Vec<CoreFrequency>>,
    /// Memory and swap.
    pub memory: Reading<MemoryActivity>,
    /// The machine.
    pub machine: Machine,
}

/// The processes at the other ends of the targets' connections.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Those on this machine.
    pub processes: Vec<ProcessActivity>,
    /// How they were named.
    pub source: PeerSource,
    /// Established connections in this direction, whatever their other end; unknown when pids were given.
    pub connections: Option<usize>,
    /// Of those, the ones whose other end is no socket of this machine that we can see.
    pub connections_elsewhere: Option<usize>,
    /// Of those, the ones whose other end is a target too.
    pub connections_within: Option<usize>,
    /// What kept the search from being complete.
    pub search_limits: Vec<String>,
}

/// How peers were named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerSource {
    /// By the user.
    Given,
    /// As owners of the sockets at the other ends of the targets' TCP connections.
    FoundOnConnections,
}

/// What a process is to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The question is about it.
    Target,
    /// The target calls it.
    Upstream,
    /// It calls the target.
    LoadGenerator,
    /// This process.
    Observer,
}

/// One process over the window.
#[derive(Debug, Clone)]
pub struct ProcessActivity {
    /// Who it is, as read at the start.
    pub process: Process,
    /// Between its first and its last reading; shorter than the observation's for one found late.
    pub window_ns: u64,
    /// CPU of all its threads that were read at least twice, or were born in the window.
    pub cpu_ns: u64,
    /// CPU by the process's own total (clock ticks), which has the threads that ended too.
    pub cpu_by_ticks_ns: Reading<u64>,
    /// Its threads, busiest first.
    pub threads: Vec<ThreadActivity>,
    /// Threads that ended in the window; what they used after their last reading is in `cpu_by_ticks_ns` only.
    pub threads_ended: usize,
    /// It ended in the window.
    pub ended: bool,
    /// It was started by a target in the window (a reload's new worker).
    pub started_in_window: bool,
}

/// Where a thread's CPU time was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSource {
    /// Nanoseconds, by the scheduler.
    Schedstat,
    /// Clock ticks (10 ms): the kernel keeps no schedstat.
    Ticks,
}

/// One thread over the window.
#[derive(Debug, Clone)]
pub struct ThreadActivity {
    /// Its id; the process's for the main thread.
    pub tid: u32,
    /// Its own name, safe to print.
    pub comm: String,
    /// Between its first and last reading, or from the process's first for one born in the window.
    pub window_ns: u64,
    /// On a core. Never more than the window.
    pub cpu_ns: u64,
    /// Where `cpu_ns` was read.
    pub cpu_source: CpuSource,
    /// User code's share of its CPU, in proportion of the ticks of both kinds.
    pub user_share_of_cpu: Reading<f64>,
    /// Runnable without a core. A wait counts when it ends, so the one going on at the end is missing.
    pub run_queue_wait_ns: Reading<u64>,
    /// It blocked.
    pub voluntary_switches: Reading<u64>,
    /// It was taken off its core.
    pub involuntary_switches: Reading<u64>,
    /// The cores it may run on, at the end.
    pub allowed: Reading<CpuSet>,
    /// The core it ran on last.
    pub last_core: u32,
    /// Its CPU by the core it was seen on at the end of each look: exact for a pinned thread, otherwise an estimate.
    pub cpu_by_core_ns: BTreeMap<u32, u64>,
    /// The largest share between two looks.
    pub peak_share: Option<f64>,
    /// How often each state (R, S, D, ...) was seen at the looks.
    pub states: BTreeMap<char, u32>,
    /// It ended in the window.
    pub ended: bool,
}

impl ThreadActivity {
    /// Its CPU, as a share of one core over its window; 0 when nothing was measured.
    pub fn cpu_share(&self) -> f64 {
        share(self.cpu_ns, self.window_ns)
    }

    /// Its run-queue wait, as a share of its window.
    pub fn wait_share(&self) -> Reading<f64> {
        self.run_queue_wait_ns
            .clone()
            .map(|wait_ns| share(wait_ns, self.window_ns))
    }
}

impl ProcessActivity {
    /// CPU of all its threads, in cores; may exceed 1.
    pub fn cpu_cores(&self) -> f64 {
        share(self.cpu_ns, self.window_ns)
    }
}

/// One process's use of the cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Its pid.
    pub pid: u32,
    /// Its name, safe to print.
    pub comm: String,
    /// What it is to the question, if anything.
    pub role: Option<Role>,
    /// CPU in the window, all its threads, in cores.
    pub cpu_cores: f64,
    /// The same by the core it was seen on; what could not be placed is in no core.
    pub by_core: BTreeMap<u32, f64>,
    /// The cores its main thread may run on.
    pub allowed: Reading<CpuSet>,
}

/// A share that stays a number whatever the window.
pub(crate) fn share(part_ns: u64, window_ns: u64) -> f64 {
    if window_ns == 0 {
        0.0
    } else {
        part_ns as f64 / window_ns as f64
    }
}
