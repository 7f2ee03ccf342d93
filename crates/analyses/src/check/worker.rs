//! The thread that the verdict is about.

use std::collections::BTreeMap;

use throughline_host::{CpuSet, Observation, ProcessActivity, Reading, ThreadActivity};

/// The target's busiest thread: the one that wanted a core most, by CPU and run-queue wait together.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The thread's name, safe to print.
    pub comm: String,
    /// The denominator of its shares.
    pub window_ns: u64,
    /// Of one core.
    pub cpu_share: f64,
    /// Of the window, runnable without a core.
    pub wait_share: Reading<f64>,
    /// The largest `cpu_share` between two looks.
    pub peak_share: Option<f64>,
    /// Times it blocked or was taken off.
    pub switches: Option<u64>,
    /// All threads of its process, in cores.
    pub process_cpu_cores: f64,
    /// The same as a share of the cores the process may use; 0 when those are unknown.
    pub process_share_of_its_cores: f64,
    /// The cores it may use.
    pub allowed: Reading<CpuSet>,
    /// Its share by the core it was seen on.
    pub cores: BTreeMap<u32, f64>,
}

impl Worker {
    /// Time it wanted a core, as a share of the window; never more than 1.
    pub fn demand(&self) -> f64 {
        demand(self.cpu_share, &self.wait_share)
    }

    /// `nginx (pid 4242)`, or with the thread where that is another.
    pub fn name(&self) -> String {
        if self.pid == self.tid {
            format!("{} (pid {})", self.comm, self.pid)
        } else {
            format!("{} (thread {} of pid {})", self.comm, self.tid, self.pid)
        }
    }
}

fn demand(cpu_share: f64, wait_share: &Reading<f64>) -> f64 {
    (cpu_share + wait_share.as_ref().copied().unwrap_or(0.0)).min(1.0)
}

/// The busiest thread of the targets.
pub(super) fn busiest(observation: &Observation) -> Option<Worker> {
    busiest_of(observation, &observation.targets)
}

/// The busiest thread of some processes that lived to the end of the window. Threads seen for less than half of it
/// (born or found late) count only when there are no others: a short window makes large shares.
pub(super) fn busiest_of(
    observation: &Observation,
    processes: &[ProcessActivity],
) -> Option<Worker> {
    let rank = |thread: &ThreadActivity| {
        let long = thread.window_ns >= observation.window_ns / 2;
        (long, demand(thread.cpu_share(), &thread.wait_share()))
    };
    processes
        .iter()
        .filter(|process| !process.ended)
        .flat_map(|process| process.threads.iter().map(move |thread| (process, thread)))
        .filter(|(_, thread)| !thread.ended && thread.window_ns > 0)
        .max_by(|(_, a), (_, b)| {
            let ((long_a, demand_a), (long_b, demand_b)) = (rank(a), rank(b));
            long_a.cmp(&long_b).then(demand_a.total_cmp(&demand_b))
        })
        .map(|(process, thread)| describe(observation, process, thread))
}

fn describe(
    observation: &Observation,
    process: &ProcessActivity,
    thread: &ThreadActivity,
) -> Worker {
    let machine_cores = || observation.cores.iter().flatten().map(|core| core.core);
    let its_cores = thread
        .allowed
        .as_ref()
        .map_or(0, |allowed| allowed.count_of(machine_cores()));
    let process_cpu_cores = process.cpu_cores();
    Worker {
        pid: process.process.pid,
        tid: thread.tid,
        comm: thread.comm.clone(),
        window_ns: thread.window_ns,
        cpu_share: thread.cpu_share(),
        wait_share: thread.wait_share(),
        peak_share: thread.peak_share,
        switches: match (&thread.voluntary_switches, &thread.involuntary_switches) {
            (Ok(voluntary), Ok(involuntary)) => Some(voluntary.saturating_add(*involuntary)),
            _ => None,
        },
        process_cpu_cores,
        process_share_of_its_cores: if its_cores == 0 {
            0.0
        } else {
            process_cpu_cores / its_cores as f64
        },
        allowed: thread.allowed.clone(),
        cores: thread
            .cpu_by_core_ns
            .iter()
            .map(|(&core, &cpu_ns)| (core, cpu_ns as f64 / thread.window_ns.max(1) as f64))
            .collect(),
    }
}
