//! A process under observation: its threads' counters, read at start and end and, when there are few
//! enough, in between.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use crate::{
    absence::{Absence, Reading, growth},
    files::Roots,
    name::printable,
    observation::{CpuSource, ProcessActivity, Role, ThreadActivity, share},
    process::Process,
    task::{Schedstat, Stat, Status},
};

/// The split into user and system is scaled from clock ticks; fewer than this many make it noise.
const FEWEST_TICKS_FOR_SPLIT: u64 = 5;

/// Nanoseconds of one clock tick, the unit of `utime` and `stime`.
pub(crate) fn ns_per_tick() -> u64 {
    1_000_000_000 / procfs::ticks_per_second().max(1)
}

/// How much of a thread is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Times and core.
    Times,
    /// Also switches and the cores it may use, which take a third file.
    Whole,
}

/// One look at one thread.
#[derive(Debug, Clone)]
struct Look {
    at: Instant,
    user_ticks: u64,
    system_ticks: u64,
    schedstat: Reading<Schedstat>,
    core: u32,
}

impl Look {
    /// A thread's counters when it was born.
    fn at_birth(at: Instant, core: u32) -> Self {
        Self {
            at,
            user_ticks: 0,
            system_ticks: 0,
            schedstat: Ok(Schedstat {
                run_ns: 0,
                wait_ns: 0,
            }),
            core,
        }
    }

    fn ns_until(&self, later: &Self) -> u64 {
        u64::try_from(later.at.saturating_duration_since(self.at).as_nanos()).unwrap_or(u64::MAX)
    }

    /// CPU from this look to a later one; never more than the time between them.
    fn cpu_until(&self, later: &Self, window_ns: u64) -> (u64, CpuSource) {
        let (cpu_ns, source) = match (&self.schedstat, &later.schedstat) {
            (Ok(first), Ok(last)) => (
                last.run_ns.saturating_sub(first.run_ns),
                CpuSource::Schedstat,
            ),
            _ => {
                let ticks = (later.user_ticks.saturating_add(later.system_ticks))
                    .saturating_sub(self.user_ticks.saturating_add(self.system_ticks));
                (ticks.saturating_mul(ns_per_tick()), CpuSource::Ticks)
            }
        };
        (cpu_ns.min(window_ns), source)
    }
}

/// A thread followed through the window.
#[derive(Debug)]
struct Track {
    comm: Vec<u8>,
    start_ticks: u64,
    first: Look,
    last: Look,
    status_first: Reading<Status>,
    status_last: Reading<Status>,
    cpu_by_core_ns: BTreeMap<u32, u64>,
    peak_share: Option<f64>,
    states: BTreeMap<char, u32>,
    ended: bool,
}

/// A process followed through the window.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) role: Role,
    pub(crate) process: Process,
    pub(crate) ended: bool,
    started_in_window: bool,
    threads: BTreeMap<u32, Track>,
    first_at: Instant,
    last_at: Instant,
    first_ticks: Reading<u64>,
    last_ticks: Reading<u64>,
}

impl Subject {
    /// Begins to follow a process. `since` is given for one known to have started in the window: its
    /// counters began at zero then.
    pub(crate) fn begin(
        roots: &Roots,
        process: Process,
        role: Role,
        since: Option<Instant>,
    ) -> Self {
        let now = Instant::now();
        let ticks = process_ticks(roots, &process);
        let mut subject = Self {
            role,
            ended: false,
            started_in_window: since.is_some(),
            threads: BTreeMap::new(),
            first_at: since.unwrap_or(now),
            last_at: now,
            first_ticks: if since.is_some() {
                Ok(0)
            } else {
                ticks.clone()
            },
            last_ticks: ticks,
            process,
        };
        subject.look_inside(roots, Depth::Whole, since);
        subject
    }

    /// Looks again. Threads not seen before were born since the last look.
    pub(crate) fn look(&mut self, roots: &Roots, depth: Depth) {
        if !self.ended {
            let born_after = self.last_at;
            self.look_inside(roots, depth, Some(born_after));
        }
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.threads.values().filter(|track| !track.ended).count()
    }

    fn look_inside(&mut self, roots: &Roots, depth: Depth, born_after: Option<Instant>) {
        let pid = self.process.pid;
        let ticks = process_ticks(roots, &self.process);
        if ticks.is_err() {
            // The pid is gone, or belongs to another process by now.
            self.ended = true;
            return;
        }
        let Ok(tids) = roots.numbers(&format!("{pid}/task")) else {
            self.ended = true;
            return;
        };
        for &tid in &tids {
            self.look_at_thread(roots, tid, depth, born_after);
        }
        let listed: HashSet<u32> = tids.into_iter().collect();
        for (tid, track) in &mut self.threads {
            track.ended |= !listed.contains(tid);
        }
        // A process whose every thread ended or became a zombie has ended, though its parent keeps its entry.
        if self.threads.values().all(|track| track.ended) {
            self.ended = true;
            return;
        }
        self.last_ticks = ticks;
        self.last_at = Instant::now();
    }

    fn look_at_thread(
        &mut self,
        roots: &Roots,
        tid: u32,
        depth: Depth,
        born_after: Option<Instant>,
    ) {
        let folder = format!("{}/task/{tid}", self.process.pid);
        let Some(stat) = roots
            .proc_file(&format!("{folder}/stat"))
            .ok()
            .and_then(|bytes| Stat::parse(&bytes).ok())
        else {
            return;
        };
        if matches!(stat.state, 'Z' | 'X') {
            if let Some(track) = self.threads.get_mut(&tid) {
                track.ended = true;
            }
            return;
        }
        let what = format!("/proc/{folder}/schedstat");
        let schedstat = roots
            .proc_file(&format!("{folder}/schedstat"))
            .and_then(|bytes| {
                Schedstat::parse(&bytes).map_err(|problem| Absence::damaged(&what, problem))
            });
        let look = Look {
            at: Instant::now(),
            user_ticks: stat.user_ticks,
            system_ticks: stat.system_ticks,
            schedstat,
            core: stat.core,
        };
        let status = match depth {
            Depth::Whole => Some(
                roots
                    .proc_file(&format!("{folder}/status"))
                    .map(|bytes| Status::parse(&bytes)),
            ),
            Depth::Times => None,
        };
        match self.threads.get_mut(&tid) {
            Some(track) if track.start_ticks == stat.start_ticks => {
                track.advance(look, stat.state, stat.comm, status)
            }
            _ => {
                let first =
                    born_after.map_or_else(|| look.clone(), |at| Look::at_birth(at, look.core));
                let mut track = Track::begin(
                    first,
                    stat.start_ticks,
                    born_after.is_some(),
                    status.clone(),
                );
                track.advance(look, stat.state, stat.comm, status);
                self.threads.insert(tid, track);
            }
        }
    }

    /// Turns counters into differences.
    pub(crate) fn finish(self) -> ProcessActivity {
        let mut threads: Vec<ThreadActivity> = self
            .threads
            .into_iter()
            .map(|(tid, track)| track.finish(tid))
            .collect();
        threads.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then(a.tid.cmp(&b.tid)));
        let what = format!("/proc/{}/stat", self.process.pid);
        let cpu_by_ticks_ns = match (self.first_ticks, self.last_ticks) {
            (Ok(first), Ok(last)) => {
                growth(&what, first, last).map(|ticks| ticks.saturating_mul(ns_per_tick()))
            }
            (Err(absence), _) | (_, Err(absence)) => Err(absence),
        };
        ProcessActivity {
            window_ns: u64::try_from(
                self.last_at
                    .saturating_duration_since(self.first_at)
                    .as_nanos(),
            )
            .unwrap_or(u64::MAX),
            cpu_ns: threads
                .iter()
                .fold(0u64, |sum, thread| sum.saturating_add(thread.cpu_ns)),
            cpu_by_ticks_ns,
            threads_ended: threads.iter().filter(|thread| thread.ended).count(),
            threads,
            ended: self.ended,
            started_in_window: self.started_in_window,
            process: self.process,
        }
    }

    /// CPU so far by the core it was seen on.
    pub(crate) fn cpu_by_core_ns(&self) -> BTreeMap<u32, u64> {
        let mut cores = BTreeMap::new();
        for (&core, &cpu_ns) in self
            .threads
            .values()
            .flat_map(|track| &track.cpu_by_core_ns)
        {
            let sum: &mut u64 = cores.entry(core).or_default();
            *sum = sum.saturating_add(cpu_ns);
        }
        cores
    }
}

impl Track {
    fn begin(first: Look, start_ticks: u64, born: bool, status: Option<Reading<Status>>) -> Self {
        let unread = || {
            Err(Absence::TooCostly(
                "the thread's status between start and end".to_owned(),
            ))
        };
        let status_first = match status {
            _ if born => Ok(Status::at_birth()),
            Some(status) => status,
            None => unread(),
        };
        Self {
            comm: Vec::new(),
            start_ticks,
            last: first.clone(),
            first,
            status_first,
            status_last: unread(),
            cpu_by_core_ns: BTreeMap::new(),
            peak_share: None,
            states: BTreeMap::new(),
            ended: false,
        }
    }

    fn advance(&mut self, look: Look, state: char, comm: Vec<u8>, status: Option<Reading<Status>>) {
        let between_ns = self.last.ns_until(&look);
        let (cpu_ns, _) = self.last.cpu_until(&look, between_ns);
        if cpu_ns > 0 {
            *self.cpu_by_core_ns.entry(look.core).or_default() += cpu_ns;
        }
        if between_ns > 0 {
            let between_share = share(cpu_ns, between_ns);
            self.peak_share = Some(
                self.peak_share
                    .map_or(between_share, |peak| peak.max(between_share)),
            );
        }
        *self.states.entry(state).or_default() += 1;
        self.comm = comm;
        self.last = look;
        if let Some(status) = status {
            self.status_last = status;
        }
    }

    fn finish(self, tid: u32) -> ThreadActivity {
        let window_ns = self.first.ns_until(&self.last);
        let (cpu_ns, cpu_source) = self.first.cpu_until(&self.last, window_ns);
        let (user, system) = (
            self.last.user_ticks.saturating_sub(self.first.user_ticks),
            self.last
                .system_ticks
                .saturating_sub(self.first.system_ticks),
        );
        let ticks = user.saturating_add(system);
        let user_share_of_cpu = if ticks < FEWEST_TICKS_FOR_SPLIT {
            Err(Absence::TooFew(format!(
                "{ticks} clock ticks, {FEWEST_TICKS_FOR_SPLIT} needed to split them"
            )))
        } else {
            Ok(user as f64 / ticks as f64)
        };
        let run_queue_wait_ns = match (&self.first.schedstat, &self.last.schedstat) {
            (Ok(first), Ok(last)) => growth("run-queue wait", first.wait_ns, last.wait_ns)
                // A wait that began before the window is added when it ends within.
                .map(|wait_ns| wait_ns.min(window_ns.saturating_sub(cpu_ns))),
            (Err(absence), _) | (_, Err(absence)) => Err(absence.clone()),
        };
        let switches = |of: fn(&Status) -> &Reading<u64>, what: &str| {
            let first = of(self.status_first.as_ref().map_err(Clone::clone)?).clone()?;
            let last = of(self.status_last.as_ref().map_err(Clone::clone)?).clone()?;
            growth(what, first, last)
        };
        ThreadActivity {
            tid,
            comm: printable(&self.comm),
            window_ns,
            cpu_ns,
            cpu_source,
            user_share_of_cpu,
            run_queue_wait_ns,
            voluntary_switches: switches(|status| &status.voluntary, "voluntary switches"),
            involuntary_switches: switches(|status| &status.involuntary, "involuntary switches"),
            allowed: self
                .status_last
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|status| status.allowed.clone()),
            last_core: self.last.core,
            cpu_by_core_ns: self.cpu_by_core_ns,
            peak_share: self.peak_share,
            states: self.states,
            ended: self.ended,
        }
    }
}

impl Status {
    fn at_birth() -> Self {
        let unread = || Absence::TooFew("a thread that was just born".to_owned());
        Self {
            process: Err(unread()),
            allowed: Err(unread()),
            voluntary: Ok(0),
            involuntary: Ok(0),
        }
    }
}

/// The process's own total, and proof that the pid still names it.
fn process_ticks(roots: &Roots, process: &Process) -> Reading<u64> {
    let what = format!("/proc/{}/stat", process.pid);
    let bytes = roots.proc_file(&format!("{}/stat", process.pid))?;
    let stat = Stat::parse(&bytes).map_err(|problem| Absence::damaged(&what, problem))?;
    if stat.start_ticks == process.start_ticks {
        Ok(stat.ticks())
    } else {
        Err(Absence::Gone(format!(
            "process {} ({})",
            process.pid, process.comm
        )))
    }
}
