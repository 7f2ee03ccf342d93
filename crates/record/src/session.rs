//! A recording from its first to its last sample.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use throughline_profile::{Capture, CaptureKind, Profile, SampleKind};
use throughline_target::MemoryError;
use throughline_units::Nanos;
use throughline_wire::{Counter, ProcessRecord, TargetEntry, ThreadAccount};

use crate::clock::Clocks;
use crate::coverage::ProgramFiles;
use crate::plan::{PlanError, RecordPlan};
use crate::process::{self, Process};
use crate::programs::{ObjectMemory, Programs, ProgramsError};
use crate::requests::Requests;
use crate::state::State;
use crate::sys;

/// How long the recorder sleeps between two looks at the ring, unless it is woken. With 100 ms the machine code of traces is gone
/// too often before it is looked at: in a VM that flushes all the time, 97.4 to 97.9 % of the stacks were complete then.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
/// How often the caller is asked for new targets.
const TARGETS_INTERVAL: Nanos = Nanos(250_000_000);
/// How often the caller gets the profile to keep.
const FLUSH_INTERVAL: Nanos = Nanos(1_000_000_000);

/// Why a recording could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// The sampling clock.
    #[error(
        "cannot open a CPU clock for process {pid}: {source} (perf_event_paranoid, CAP_PERFMON)"
    )]
    Clock {
        /// The process.
        pid: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// A target.
    #[error("process {pid} cannot be recorded: {source}")]
    Target {
        /// The process.
        pid: u32,
        /// Why.
        source: MemoryError,
    },
    /// More targets than the table holds.
    #[error("process {pid} cannot be added to the recorded ones: {source}")]
    TargetTable {
        /// The process.
        pid: u32,
        /// The map's answer.
        source: libbpf_rs::Error,
    },
    /// No file descriptor is left.
    #[error("no file descriptor is left: {0} (ulimit -n)")]
    Descriptors(io::Error),
    /// The ring.
    #[error("reading the ring buffer failed: {0}")]
    Ring(libbpf_rs::Error),
    /// The keeper of the profile.
    #[error("the capture cannot be kept: {0}")]
    Keeper(Box<dyn std::error::Error + Send + Sync>),
}

/// How a recording is going, for a progress line.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Nanos,
    /// Samples kept, both kinds.
    pub kept: u64,
    /// Samples lost.
    pub lost: u64,
    /// Live targets.
    pub targets: usize,
}

/// What a caller does while a recording runs.
pub trait Keeper {
    /// Keeps what is new in the profile and takes its samples out; called about once a second.
    ///
    /// # Errors
    /// Anything; it ends the recording.
    fn flush(
        &mut self,
        profile: &mut Profile,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Called about 20 times a second, for the first time when everything is attached; `false` ends the recording.
    fn go_on(&mut self, progress: Progress) -> bool;

    /// Processes that should be targets now, asked for about four times a second: those of a name or a control group may come
    /// from anywhere. Known ones may be named again.
    fn targets_now(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

/// Off-CPU account of one thread over a whole recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Off-CPU time in stretches that were kept as samples.
    pub kept: Nanos,
    /// Off-CPU time in shorter stretches.
    pub short: Nanos,
    /// Off-CPU time in longer stretches.
    pub long: Nanos,
    /// Off-CPU time in the stretch that was not over at the end.
    pub open: Nanos,
    /// Off-CPU time in the stretch that was under way when the thread was first looked at.
    pub unseen: Nanos,
    /// Run time by the scheduler's own account. It is up to a tick old for a thread that runs when it is looked at.
    pub run: Nanos,
    /// From when the thread was first looked at until its end or the recording's: the sum of the others.
    pub observed: Nanos,
}

/// What is left when a recording is over.
pub struct Recorded {
    /// The profile; its samples have been handed to the keeper.
    pub profile: Profile,
    /// Off-CPU accounts by thread.
    pub threads: Vec<ThreadTimes>,
}

/// Records according to a plan until its time is over, its targets have ended, or the keeper says so.
///
/// # Errors
/// [`RecordError`]; what was flushed before it stays kept.
pub fn record(
    plan: &RecordPlan,
    capture: Capture,
    keeper: &mut dyn Keeper,
) -> Result<Recorded, RecordError> {
    record_with(ProgramFiles::default(), plan, capture, keeper)
}

/// Like [`record`], with program files that were read before.
///
/// # Errors
/// As [`record`].
pub fn record_with(
    files: ProgramFiles,
    plan: &RecordPlan,
    mut capture: Capture,
    keeper: &mut dyn Keeper,
) -> Result<Recorded, RecordError> {
    capture.warnings.extend(plan.check()?);
    let mut memory = ObjectMemory::new();
    let mut programs = Programs::load(plan, &mut memory)?;
    let mut clocks = Clocks::new(plan.period());
    let mut profile = Profile::default();
    fill_facts(&mut capture, plan);
    profile.capture = capture;

    let namer = programs
        .address_namer()
        .try_clone_to_owned()
        .map_err(RecordError::Descriptors)?;
    let state = Rc::new(RefCell::new(State::new(profile, files.0, namer)));
    for &pid in &plan.pids {
        state
            .borrow_mut()
            .open_process(pid)
            .map_err(|source| RecordError::Target { pid, source })?;
    }
    let start = state.borrow_mut().read_names_and_begin();
    programs.attach(plan)?;
    let mut requests = Requests::begin(plan, &state.borrow().processes);
    let ring = programs.ring({
        let state = Rc::clone(&state);
        move |bytes| state.borrow_mut().consume(bytes)
    })?;
    tell_targets(&mut programs, &state, &mut requests)?;
    watch_parents(&programs, &mut clocks, plan)?;
    watch_targets(&programs, &mut clocks, plan, &plan.pids, &state)?;
    if clocks.per_core() {
        state.borrow_mut().folder.profile.capture.warnings.push(
            "more threads than file descriptors: one clock per core samples by wall time"
                .to_owned(),
        );
    }

    let mut flushed = start;
    let mut asked = start;
    let mut failure = None;
    loop {
        if let Err(error) = ring.drain(DRAIN_INTERVAL) {
            failure = Some(RecordError::Ring(error));
            break;
        }
        let now = sys::monotonic();
        if now - asked >= TARGETS_INTERVAL {
            asked = now;
            for pid in join_targets(keeper, &state) {
                let watched = tell_targets(&mut programs, &state, &mut requests)
                    .and_then(|()| watch_targets(&programs, &mut clocks, plan, &[pid], &state));
                if let Err(error) = watched {
                    // The others are worth recording all the same.
                    let mut s = state.borrow_mut();
                    s.processes.remove(&pid);
                    s.folder.profile.capture.warnings.push(error.to_string());
                }
            }
        }
        if let Err(error) = tell_targets(&mut programs, &state, &mut requests) {
            failure = Some(error);
            break;
        }
        let mut s = state.borrow_mut();
        if now - flushed >= FLUSH_INTERVAL {
            flushed = now;
            s.processes.values_mut().for_each(Process::read_cpu_time);
            let counters = programs.counters();
            s.account(&counters, false);
            requests.read(&s.processes);
            s.folder.profile.capture.requests = requests.result(finished(&counters));
            if let Err(error) = keeper.flush(&mut s.folder.profile) {
                failure = Some(RecordError::Keeper(error));
                break;
            }
        }
        let progress = Progress {
            elapsed: now - start,
            kept: s.kept_on + s.kept_off,
            lost: s.folder.profile.ledger.lost_total().0,
            targets: s.processes.len(),
        };
        let over = plan
            .duration
            .is_some_and(|duration| now - start >= Nanos::from(duration));
        if !keeper.go_on(progress) || over || s.processes.is_empty() {
            break;
        }
    }
    state
        .borrow_mut()
        .processes
        .values_mut()
        .for_each(Process::read_cpu_time);
    clocks.stop();
    let accounts_read = if plan.off_cpu {
        programs.read_accounts()
    } else {
        Ok(())
    };
    let end = sys::monotonic();
    requests.read(&state.borrow().processes);
    let accounts = if plan.off_cpu {
        programs.thread_accounts()
    } else {
        Vec::new()
    };
    programs.detach();
    let drained = ring.drain_all().map_err(RecordError::Ring);
    drop(ring);
    let counters = programs.counters();
    drop(programs);
    let mut state = Rc::into_inner(state)
        .expect("the ring, which held the other reference, is gone")
        .into_inner();
    state.account(&counters, true);
    let capture = &mut state.folder.profile.capture;
    capture.requests = requests.result(finished(&counters));
    capture.duration = end - start;
    capture.complete = failure.is_none();
    if let Some(failure) = failure {
        // What was read is still worth keeping, if that is possible at all.
        let _ = keeper.flush(&mut state.folder.profile);
        return Err(failure);
    }
    drained?;
    accounts_read?;
    keeper
        .flush(&mut state.folder.profile)
        .map_err(RecordError::Keeper)?;
    Ok(Recorded {
        threads: accounts
            .iter()
            .map(|account| thread_times(account, end))
            .collect(),
        profile: state.folder.profile,
    })
}

/// Opens the processes that the keeper names and that are not known yet; returns those.
fn join_targets(keeper: &mut dyn Keeper, state: &Rc<RefCell<State>>) -> Vec<u32> {
    let mut s = state.borrow_mut();
    keeper
        .targets_now()
        .into_iter()
        .filter(|pid| !s.processes.contains_key(pid))
        .collect::<Vec<u32>>()
        .into_iter()
        .filter(|&pid| s.open_process(pid).is_ok())
        .collect()
}

fn fill_facts(capture: &mut Capture, plan: &RecordPlan) {
    capture.kinds = [
        (plan.on_cpu, CaptureKind::OnCpu),
        (plan.off_cpu, CaptureKind::OffCpu),
    ]
    .into_iter()
    .filter_map(|(on, kind)| on.then_some(kind))
    .collect();
    capture.rate_hz = if plan.on_cpu { plan.rate_hz } else { 0 };
    capture.min_block_ns = Nanos::from(plan.min_block).0;
    capture.max_block_ns = Nanos::from(plan.max_block).0;
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    capture.host = read("/proc/sys/kernel/hostname");
    capture.kernel = read("/proc/sys/kernel/osrelease");
    capture.started_unix_ns = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| Nanos::from(since).0);
}

/// Starts the clocks and the accounts of processes that are targets already.
fn watch_targets(
    programs: &Programs<'_>,
    clocks: &mut Clocks,
    plan: &RecordPlan,
    pids: &[u32],
    state: &Rc<RefCell<State>>,
) -> Result<(), RecordError> {
    for &pid in pids.iter().filter(|_| plan.on_cpu) {
        clocks
            .add_process(pid, programs.clock_program())
            .map_err(|source| RecordError::Clock { pid, source })?;
    }
    for pid in pids {
        let mut s = state.borrow_mut();
        s.recheck(*pid);
        if let Some(process) = s.processes.get_mut(pid) {
            process.begin_cpu_time();
        }
    }
    if plan.off_cpu && !pids.is_empty() {
        programs.read_accounts()?;
    }
    Ok(())
}

fn finished(counters: &BTreeMap<Counter, u64>) -> u64 {
    counters
        .get(&Counter::RequestsFinished)
        .copied()
        .unwrap_or(0)
}

/// Tells the BPF program of processes and VMs that are new, and counts the requests of their programs.
fn tell_targets(
    programs: &mut Programs<'_>,
    state: &Rc<RefCell<State>>,
    requests: &mut Requests,
) -> Result<(), RecordError> {
    let (changed, events) = {
        let mut s = state.borrow_mut();
        (
            std::mem::take(&mut s.vms_changed),
            std::mem::take(&mut s.pending),
        )
    };
    let s = state.borrow();
    for pid in changed {
        if let Some(process) = s.processes.get(&pid) {
            requests.watch(programs, process);
            programs
                .set_target(pid, &process.entry())
                .map_err(|source| RecordError::TargetTable { pid, source })?;
        }
    }
    for event in events {
        if let ProcessRecord::Ended { pid, .. } = event
            && !s.processes.contains_key(&pid)
        {
            programs.remove_target(pid);
        }
    }
    Ok(())
}

/// A worker's siblings join when its parent runs the same program: nginx starts new workers from its master on a reload.
fn watch_parents(
    programs: &Programs<'_>,
    clocks: &mut Clocks,
    plan: &RecordPlan,
) -> Result<(), RecordError> {
    if !plan.follow_forks {
        return Ok(());
    }
    let parents: HashSet<u32> = plan
        .pids
        .iter()
        .map(|&pid| (pid, process::parent(pid)))
        .filter(|&(pid, parent)| {
            parent > 1
                && !plan.pids.contains(&parent)
                && !process::exe(pid).is_empty()
                && process::exe(pid) == process::exe(parent)
        })
        .map(|(_, parent)| parent)
        .collect();
    for pid in parents {
        programs
            .set_target(pid, &TargetEntry::default())
            .map_err(|source| RecordError::TargetTable { pid, source })?;
        if plan.on_cpu {
            clocks
                .add_process(pid, programs.clock_program())
                .map_err(|source| RecordError::Clock { pid, source })?;
        }
    }
    Ok(())
}

fn thread_times(account: &ThreadAccount, end: Nanos) -> ThreadTimes {
    let last = if account.ended_ns > 0 {
        Nanos(account.ended_ns)
    } else {
        end
    };
    ThreadTimes {
        pid: account.pid,
        tid: account.tid,
        kept: Nanos(account.kept_ns),
        short: Nanos(account.short_ns),
        long: Nanos(account.long_ns),
        open: if account.left_ns > 0 {
            last - Nanos(account.left_ns)
        } else {
            Nanos(0)
        },
        unseen: Nanos(account.unseen_ns),
        run: Nanos(account.run_last_ns) - Nanos(account.run_first_ns),
        observed: last - Nanos(account.since_ns),
    }
}

/// How many samples of each kind a profile holds.
#[must_use]
pub fn sample_counts(profile: &Profile) -> (usize, usize) {
    let on = profile
        .samples
        .iter()
        .filter(|sample| sample.kind == SampleKind::OnCpu)
        .count();
    (on, profile.samples.len() - on)
}
