//! What a recording knows while it runs: processes, losses, and the profile that it fills.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;

use throughline_profile::{Ledger, Profile, Target};
use throughline_target::MemoryError;
use throughline_units::Nanos;
use throughline_wire::{Counter, ProcessRecord, SampleRecord, kind, record_kind};

use crate::fold::Folder;
use crate::image::Images;
use crate::process::Process;
use crate::sys;

/// Ended processes that are remembered; each is some 100 KB.
const LEAVING_MAX: usize = 64;

/// The state of a recording.
pub struct State {
    /// Turns records into samples.
    pub folder: Folder,
    /// Live targets by pid.
    pub processes: HashMap<u32, Process>,
    ended: Vec<Target>,
    /// Processes that have ended and may still have samples: of the kernel taking down their memory.
    leaving: HashMap<u32, Process>,
    gone: HashSet<u32>,
    lost: Losses,
    /// Process events that the BPF program's table of targets has not followed yet.
    pub pending: Vec<ProcessRecord>,
    /// Processes whose entry in that table is out of date.
    pub vms_changed: Vec<u32>,
    /// On-CPU samples kept.
    pub kept_on: u64,
    /// Off-CPU samples kept.
    pub kept_off: u64,
    start: Nanos,
}

/// Losses in user space, which the BPF program does not count.
#[derive(Default)]
struct Losses {
    on_cpu: BTreeMap<&'static str, u64>,
    off_cpu: BTreeMap<&'static str, u64>,
}

impl Losses {
    fn lose(&mut self, record_kind: u32, reason: &'static str) {
        let table = if record_kind == kind::OFF_CPU {
            &mut self.off_cpu
        } else {
            &mut self.on_cpu
        };
        *table.entry(reason).or_default() += 1;
    }
}

impl State {
    /// Nothing recorded yet.
    #[must_use]
    pub fn new(profile: Profile, images: Images, kernel_namer: OwnedFd) -> Self {
        let start = sys::monotonic();
        Self {
            folder: Folder::new(profile, images, kernel_namer, start),
            processes: HashMap::new(),
            ended: Vec::new(),
            leaving: HashMap::new(),
            gone: HashSet::new(),
            lost: Losses::default(),
            pending: Vec::new(),
            vms_changed: Vec::new(),
            kept_on: 0,
            kept_off: 0,
            start,
        }
    }

    /// Reads all names that are in files, and begins: a program may have ended by the time at which its first sample has waited
    /// for them, and what is in its memory alone, the names of its Lua functions, would be lost.
    pub fn read_names_and_begin(&mut self) -> Nanos {
        for process in self.processes.values_mut() {
            process.facts.joined = Nanos(0);
            for mapped in process.space.images() {
                // A file without names says so again at its first sample.
                let _ = mapped
                    .image
                    .as_ref()
                    .map(|image| image.code_map(&mapped.path));
            }
        }
        self.start = sys::monotonic();
        self.folder.begin(self.start);
        self.start
    }

    /// One record of the ring.
    pub fn consume(&mut self, bytes: &[u8]) {
        match record_kind(bytes) {
            Some(kind::PROCESS) => {
                if let Ok(event) = ProcessRecord::parse(bytes) {
                    self.process_event(event);
                }
            }
            Some(code) => match SampleRecord::parse(bytes) {
                Ok(record) => self.sample(&record),
                Err(_) => self.lost.lose(code, "malformed_record"),
            },
            None => self.lost.lose(kind::ON_CPU, "malformed_record"),
        }
    }

    fn sample(&mut self, record: &SampleRecord<'_>) {
        let pid = record.header.pid;
        let now = Nanos(record.header.time_ns);
        let known = self.processes.contains_key(&pid) || self.leaving.contains_key(&pid);
        if !known && self.open_process(pid).is_err() {
            self.lost.lose(record.header.kind, "thread_gone");
            return;
        }
        let Some(process) = self
            .processes
            .get_mut(&pid)
            .or_else(|| self.leaving.get_mut(&pid))
        else {
            return;
        };
        self.folder.fold(process, record);
        if record.header.kind == kind::ON_CPU {
            self.kept_on += 1;
        } else {
            self.kept_off += 1;
        }
        if process.search_vms_if_due(now, &mut self.folder.images) {
            self.vms_changed.push(pid);
        }
    }

    /// Makes a process a target.
    ///
    /// # Errors
    /// The error of its memory; it is not tried again until a process of this id is started.
    pub fn open_process(&mut self, pid: u32) -> Result<(), MemoryError> {
        if self.gone.contains(&pid) {
            return Err(MemoryError::Gone);
        }
        let now = sys::monotonic();
        match Process::open(pid, now, &mut self.folder.images) {
            Ok(mut process) => {
                process.facts.joined = now - self.start;
                self.processes.insert(pid, process);
                self.vms_changed.push(pid);
                Ok(())
            }
            Err(error) => {
                self.gone.insert(pid);
                Err(error)
            }
        }
    }

    /// Opens a process again that runs another program now. One that cannot be opened has ended.
    fn reopen(&mut self, pid: u32) {
        self.gone.remove(&pid);
        let Some(old) = self.processes.remove(&pid) else {
            return;
        };
        if self.open_process(pid).is_ok()
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.facts.joined = old.facts.joined;
            process.cpu_before = old.cpu_before;
            process.vm_search_due = true;
        } else {
            let mut facts = old.facts;
            facts.ended = Some(sys::monotonic() - self.start);
            self.ended.push(facts);
        }
    }

    /// Looks whether a process ended or executed another program between being opened and being watched.
    pub fn recheck(&mut self, pid: u32) {
        if self
            .processes
            .get(&pid)
            .is_some_and(|process| process.memory.maps() == Err(MemoryError::Gone))
        {
            self.reopen(pid);
        }
    }

    fn process_event(&mut self, event: ProcessRecord) {
        match event {
            ProcessRecord::Forked { pid, parent } => {
                self.gone.remove(&pid);
                self.leaving.remove(&pid);
                // Opened at once: a child that ends soon has its mappings only now.
                if self.open_process(pid).is_err() {
                    self.open_through_parent(pid, parent);
                }
            }
            ProcessRecord::Executed { pid } => self.reopen(pid),
            ProcessRecord::Ended {
                pid,
                time_ns,
                cpu_ns,
            } => {
                if let Some(mut process) = self.processes.remove(&pid) {
                    process.facts.cpu_ns = Some((Nanos(cpu_ns) - process.cpu_before).0);
                    let ended = Nanos(time_ns) - self.start;
                    process.facts.ended = Some(ended);
                    // It may have been over before the recorder heard of its beginning.
                    process.facts.joined = process.facts.joined.min(ended);
                    self.ended.push(process.facts.clone());
                    if self.leaving.len() >= LEAVING_MAX {
                        self.leaving.clear();
                    }
                    self.leaving.insert(pid, process);
                }
            }
        }
        self.pending.push(event);
    }

    /// A child that is gone already had its parent's memory until it executed another program, if it did: the parent shows what
    /// its addresses meant.
    fn open_through_parent(&mut self, pid: u32, parent: u32) {
        let now = sys::monotonic();
        let Ok(mut process) = Process::open(parent, now, &mut self.folder.images) else {
            return;
        };
        process.facts.pid = pid;
        process.facts.joined = now - self.start;
        self.gone.remove(&pid);
        self.processes.insert(pid, process);
    }

    /// Ledgers and target facts as of now. While the recording runs, samples are between the kernel's counters and the profile;
    /// when it is over (`over`), every one must be somewhere, and a ledger that does not add up stays as it is.
    pub fn account(&mut self, counters: &BTreeMap<Counter, u64>, over: bool) {
        let count = |counter| counters.get(&counter).copied().unwrap_or(0);
        if over {
            self.warn_of_full_tables(counters);
        }
        let ledger =
            |taken: Counter, kept: u64, losses: &[Counter], own: &BTreeMap<&'static str, u64>| {
                let mut ledger = Ledger {
                    taken: count(taken),
                    kept,
                    ..Ledger::default()
                };
                for &loss in losses {
                    ledger.lose(loss.name(), count(loss));
                }
                for (&reason, &number) in own {
                    ledger.lose(reason, number);
                }
                let known = ledger.kept + ledger.lost_total().0;
                if !over {
                    ledger.taken = ledger.taken.max(known);
                    ledger.lose("in_flight", ledger.taken - known);
                }
                ledger
            };
        let on_cpu = ledger(
            Counter::OnCpuTaken,
            self.kept_on,
            &[Counter::OnCpuRingFull, Counter::OnCpuNoRegisters],
            &self.lost.on_cpu,
        );
        let off_cpu = ledger(
            Counter::OffCpuTaken,
            self.kept_off,
            &[
                Counter::OffCpuRingFull,
                Counter::OffCpuNoSlot,
                Counter::OffCpuNoRegisters,
            ],
            &self.lost.off_cpu,
        );
        let profile = &mut self.folder.profile;
        let flagged = std::mem::take(&mut profile.ledger.flagged);
        profile.ledger = Ledger {
            flagged,
            ..Ledger::default()
        };
        profile.ledger.merge(&on_cpu);
        profile.ledger.merge(&off_cpu);
        let sent = count(Counter::OnCpuSent) + count(Counter::OnCpuRingFull);
        profile.capture.bpf_ns_per_sample_mean =
            (sent > 0).then(|| count(Counter::OnCpuNs) as f64 / sent as f64);
        profile.capture.ledger_on_cpu = on_cpu;
        profile.capture.ledger_off_cpu = off_cpu;
        profile.capture.recorder_cpu = sys::own_cpu_time();
        profile.capture.duration = sys::monotonic() - self.start;
        let mut targets: Vec<Target> = self.ended.clone();
        targets.extend(self.processes.values().map(|process| process.facts.clone()));
        targets.sort_by_key(|target| target.pid);
        profile.capture.targets = targets;
    }

    /// Losses that are not samples.
    fn warn_of_full_tables(&mut self, counters: &BTreeMap<Counter, u64>) {
        for (counter, what) in [
            (
                Counter::ProcessRingFull,
                "starts and ends of processes went unseen: the ring was full",
            ),
            (
                Counter::ThreadTableFull,
                "times a thread went without an account of its waits: the table of threads was full",
            ),
            (
                Counter::TargetTableFull,
                "children went unrecorded: the table of targets was full",
            ),
        ] {
            let count = counters.get(&counter).copied().unwrap_or(0);
            if count > 0 {
                self.folder
                    .profile
                    .capture
                    .warnings
                    .push(format!("{count} {what}"));
            }
        }
    }
}
