//! Every process's CPU over the window, and on which cores: who else was there.
//!
//! Totals are clock ticks of /proc/PID/stat, which hold the threads that ended too. A core is attributed by
//! where each thread was seen at the end of a look: exact for pinned threads, an estimate for others.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use crate::{
    absence::{Absence, Reading},
    cpu_set::CpuSet,
    files::Roots,
    name::printable,
    observation::{Tenant, share},
    subject::ns_per_tick,
    task::{Stat, Status},
};

/// Beyond this many processes they are read at start and end only: a look at 4,096 costs about 40 ms.
pub(crate) const MOST_PROCESSES_PER_LOOK: usize = 4096;
/// Threads of busy processes read in one look to see their cores.
const MOST_THREADS_PER_LOOK: usize = 1024;
/// A tenant that used less than this share of one core is not worth a line.
const LEAST_CORES: f64 = 0.001;

/// All processes of the machine, by pid.
#[derive(Debug)]
pub(crate) struct Census {
    entries: HashMap<u32, Entry>,
    began: Instant,
    looks: u32,
}

#[derive(Debug)]
struct Entry {
    comm: Vec<u8>,
    start_ticks: u64,
    first_ticks: u64,
    last_ticks: u64,
    by_core_ticks: BTreeMap<u32, u64>,
    /// Last known ticks of each thread, for processes that were busy.
    threads: HashMap<u32, u64>,
}

/// A process that appeared since the last look, and its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newcomer {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

impl Census {
    pub(crate) fn begin() -> Self {
        Self {
            entries: HashMap::new(),
            began: Instant::now(),
            looks: 0,
        }
    }

    /// Reads the processes given. Those not seen before, but for the first look, were born since.
    pub(crate) fn look(&mut self, roots: &Roots, pids: &[u32]) -> Vec<Newcomer> {
        let first_look = self.looks == 0;
        self.looks += 1;
        let mut newcomers = Vec::new();
        let mut thread_budget = MOST_THREADS_PER_LOOK;
        for &pid in pids {
            let Some(stat) = roots
                .proc_file(&format!("{pid}/stat"))
                .ok()
                .and_then(|bytes| Stat::parse(&bytes).ok())
            else {
                continue;
            };
            let known = self
                .entries
                .get(&pid)
                .is_some_and(|entry| entry.start_ticks == stat.start_ticks);
            if !known {
                if !first_look {
                    newcomers.push(Newcomer {
                        pid,
                        parent: stat.parent,
                    });
                }
                self.entries.insert(pid, Entry::new(&stat, first_look));
            }
            if let Some(entry) = self.entries.get_mut(&pid) {
                entry.advance(roots, pid, &stat, &mut thread_budget);
            }
        }
        newcomers
    }

    /// The processes that used CPU, busiest first.
    pub(crate) fn finish(self, roots: &Roots) -> Vec<Tenant> {
        let window_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cores = |ticks: u64| share(ticks.saturating_mul(ns_per_tick()), window_ns);
        let mut tenants: Vec<Tenant> = self
            .entries
            .into_iter()
            .map(|(pid, entry)| {
                (
                    pid,
                    cores(entry.last_ticks.saturating_sub(entry.first_ticks)),
                    entry,
                )
            })
            .filter(|&(_, cpu_cores, _)| cpu_cores >= LEAST_CORES)
            .map(|(pid, cpu_cores, entry)| Tenant {
                pid,
                comm: printable(&entry.comm),
                role: None,
                cpu_cores,
                by_core: entry
                    .by_core_ticks
                    .iter()
                    .map(|(&core, &ticks)| (core, cores(ticks)))
                    .collect(),
                allowed: allowed(roots, pid),
            })
            .collect();
        tenants.sort_by(|a, b| b.cpu_cores.total_cmp(&a.cpu_cores).then(a.pid.cmp(&b.pid)));
        tenants
    }
}

impl Entry {
    fn new(stat: &Stat, first_look: bool) -> Self {
        let ticks = if first_look { stat.ticks() } else { 0 };
        Self {
            comm: Vec::new(),
            start_ticks: stat.start_ticks,
            first_ticks: ticks,
            last_ticks: ticks,
            by_core_ticks: BTreeMap::new(),
            threads: HashMap::new(),
        }
    }

    fn advance(&mut self, roots: &Roots, pid: u32, stat: &Stat, thread_budget: &mut usize) {
        // The name may be set after the fork; the last one is the one a user would see.
        self.comm.clone_from(&stat.comm);
        let grown = stat.ticks().saturating_sub(self.last_ticks);
        self.last_ticks = self.last_ticks.max(stat.ticks());
        if grown == 0 {
            return;
        }
        if stat.threads <= 1 {
            self.place(stat.core, grown);
        } else {
            self.place_threads(roots, pid, thread_budget);
        }
    }

    fn place(&mut self, core: u32, ticks: u64) {
        let sum = self.by_core_ticks.entry(core).or_default();
        *sum = sum.saturating_add(ticks);
    }

    /// A thread's first look only gives its starting point, so its CPU before that stays without a core.
    fn place_threads(&mut self, roots: &Roots, pid: u32, budget: &mut usize) {
        let tids = roots.numbers(&format!("{pid}/task")).unwrap_or_default();
        if tids.len() > *budget {
            return;
        }
        *budget -= tids.len();
        for tid in tids {
            let Some(stat) = roots
                .proc_file(&format!("{pid}/task/{tid}/stat"))
                .ok()
                .and_then(|bytes| Stat::parse(&bytes).ok())
            else {
                continue;
            };
            if let Some(before) = self.threads.insert(tid, stat.ticks()) {
                self.place(stat.core, stat.ticks().saturating_sub(before));
            }
        }
    }
}

fn allowed(roots: &Roots, pid: u32) -> Reading<CpuSet> {
    let bytes = roots
        .proc_file(&format!("{pid}/status"))
        .map_err(|_| Absence::Gone(format!("process {pid}")))?;
    Status::parse(&bytes).allowed
}
