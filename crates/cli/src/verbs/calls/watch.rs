//! Probes of live processes, read again and again.
//!
//! nginx forks its workers from a master that has run the probe already, so a worker begins with the counts of its
//! master. What counts is the difference between two readings of one process, or, for a worker that appears while it is
//! watched, between its last reading and its master's.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, bail};
use throughline_analyses::calls::{
    EventTotals, EventsSeen, FunctionSeen, Installed, Requests, StartFate, StartPlace, Watched,
};
use throughline_target::{
    LiveProcess, Mapping, MemoryError, Probe, ProbeError, ProbeFunction, ProbeInstalled,
    parse_maps, probe_mappings, read_probe, read_requests,
};

use crate::failure::TooFewData;
use crate::verbs::targets::Selection;

/// A process with a probe.
struct Subject {
    parent: u32,
    memory: LiveProcess,
    mapping: Mapping,
    /// What it had counted before the time watched.
    first: Probe,
    last: Probe,
    ended: bool,
}

/// Requests by master, and probes by process.
type Reading = (BTreeMap<u32, u64>, BTreeMap<u32, Probe>);

/// The processes of a selection that have a probe, and what nginx had counted when the watch began.
pub struct Watch {
    selection: Selection,
    subjects: BTreeMap<u32, Subject>,
    /// By master: requests at the beginning.
    requests_first: BTreeMap<u32, u64>,
}

impl Watch {
    /// Finds the probes and reads them for the first time.
    pub fn begin(selection: Selection) -> Result<Self> {
        let processes = selection.find()?;
        let mut watch = Self {
            selection,
            subjects: BTreeMap::new(),
            requests_first: BTreeMap::new(),
        };
        let mut refused = None;
        for process in &processes {
            match find(process.pid) {
                Ok(Some((memory, mapping, probe))) => {
                    watch.subjects.insert(
                        process.pid,
                        Subject {
                            parent: process.parent,
                            memory,
                            mapping,
                            first: probe.clone(),
                            last: probe,
                            ended: false,
                        },
                    );
                }
                Ok(None) | Err(ProbeError::Memory(MemoryError::Gone)) => {}
                Err(error) => refused = Some((process.pid, error)),
            }
        }
        if let Some((pid, error)) = &refused
            && watch.subjects.is_empty()
        {
            bail!(
                "cannot read the probe of process {pid}: {error}; reading another process takes root or CAP_SYS_PTRACE"
            );
        }
        if watch.subjects.is_empty() {
            return Err(TooFewData(
                "none of these processes has a probe: load probe/throughline.lua first in init_by_lua and reload".into(),
            )
            .into());
        }
        watch.requests_first = watch.read_together();
        for subject in watch.subjects.values_mut() {
            subject.first = subject.last.clone();
        }
        Ok(watch)
    }

    /// Reads what the probes have counted, and takes in processes that have appeared.
    pub fn look(&mut self) {
        for (&pid, subject) in &mut self.subjects {
            subject.look(pid);
        }
        let Ok(processes) = self.selection.find() else {
            return;
        };
        for process in processes {
            if self.subjects.contains_key(&process.pid) {
                continue;
            }
            let Ok(Some((memory, mapping, probe))) = find(process.pid) else {
                continue;
            };
            let inherited = self
                .subjects
                .get(&process.parent)
                .map(|parent| &parent.last)
                .filter(|parent| parent.generation_us == probe.generation_us);
            let first = inherited.unwrap_or(&probe).clone();
            self.subjects.insert(
                process.pid,
                Subject {
                    parent: process.parent,
                    memory,
                    mapping,
                    first,
                    last: probe,
                    ended: false,
                },
            );
        }
    }

    /// Reads a last time and gives what was seen.
    pub fn end(mut self) -> (Vec<Watched>, Requests) {
        for (&pid, subject) in &mut self.subjects {
            subject.look(pid);
        }
        let requests_last = self.read_together();
        let requests = self.requests_between(&requests_last);
        let watched = self
            .subjects
            .iter()
            .map(|(&pid, subject)| subject.watched(pid))
            .collect();
        (watched, requests)
    }

    /// Reads probes and requests at one time, as far as that can be had of a program that goes on: the requests before
    /// and after the probes, of several tries the one with the fewest between them, and the middle of both.
    fn read_together(&mut self) -> BTreeMap<u32, u64> {
        const TRIES: usize = 8;
        let mut best: Option<(u64, Reading)> = None;
        for _ in 0..TRIES {
            let before = self.requests();
            let probes: BTreeMap<u32, Probe> = self
                .subjects
                .iter()
                .filter_map(|(&pid, subject)| Some((pid, subject.read()?)))
                .collect();
            let after = self.requests();
            let distance = |master: &u32, count: &u64| {
                let after = after.get(master).copied().unwrap_or(*count);
                after.saturating_sub(*count)
            };
            let apart = before.iter().map(|(m, c)| distance(m, c)).sum();
            if best.as_ref().is_none_or(|(known, _)| apart < *known) {
                let middle = before
                    .iter()
                    .map(|(m, c)| (*m, c.saturating_add(distance(m, c) / 2)))
                    .collect();
                best = Some((apart, (middle, probes)));
            }
            if apart == 0 {
                break;
            }
        }
        let Some((_, (requests, probes))) = best else {
            return BTreeMap::new();
        };
        for (pid, probe) in probes {
            if let Some(subject) = self.subjects.get_mut(&pid) {
                subject.last = probe;
            }
        }
        requests
    }

    /// The master of a worker: its parent, if that has a probe or is the parent of all that have.
    fn master_of(&self, pid: u32, subject: &Subject) -> u32 {
        let is_master = self.subjects.values().any(|other| other.parent == pid);
        if is_master { pid } else { subject.parent }
    }

    /// What nginx has counted, by master.
    fn requests(&self) -> BTreeMap<u32, u64> {
        let mut requests = BTreeMap::new();
        for (&pid, subject) in &self.subjects {
            let pointer = subject.last.requests_pointer;
            if pointer != 0
                && let Ok(Some(count)) = read_requests(&subject.memory, pointer)
            {
                requests.insert(self.master_of(pid, subject), count);
            }
        }
        requests
    }

    fn requests_between(&self, last: &BTreeMap<u32, u64>) -> Requests {
        if let Some(by_function) = self.requests_by_function() {
            return by_function;
        }
        let unknown = |reason: String| Requests::Unknown { reason };
        let mut count = 0_u64;
        for (&pid, subject) in &self.subjects {
            let master = self.master_of(pid, subject);
            if let Some(other) = self.unwatched_worker(master) {
                return unknown(format!(
                    "nginx counts the requests of all workers together, and worker {other} is not among the targets; \
                     name all of them, or start the probe with `requests`"
                ));
            }
            if !self.requests_first.contains_key(&master) || !last.contains_key(&master) {
                return unknown(
                    "this program keeps no count of requests (nginx does with stub_status); start the probe with \
                     `requests`, the name of a function that runs once per request"
                        .into(),
                );
            }
        }
        for (master, end) in last {
            let begin = self.requests_first.get(master).copied().unwrap_or(*end);
            // Less than before: another nginx has taken the place of this one.
            count = count.saturating_add(end.saturating_sub(begin));
        }
        Requests::Known {
            count,
            source: "nginx: ngx_stat_requests".into(),
        }
    }

    fn requests_by_function(&self) -> Option<Requests> {
        let mut total = 0_u64;
        let mut source = None;
        for subject in self.subjects.values() {
            let index = subject.last.requests_function?;
            let function = subject.last.functions.get(index)?;
            if !is_wrapped(function) {
                return Some(Requests::Unknown {
                    reason: format!("{} was not found", function.name),
                });
            }
            total = total.saturating_add(subject.calls(index, function));
            source = Some(format!("calls of {}", function.name));
        }
        source.map(|source| Requests::Known {
            count: total,
            source,
        })
    }

    /// A child of `master` with a probe that is not watched.
    fn unwatched_worker(&self, master: u32) -> Option<u32> {
        let text = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
        let children = text.split_whitespace().filter_map(|word| word.parse().ok());
        children
            .filter(|pid| !self.subjects.contains_key(pid))
            .find(|&pid| matches!(find(pid), Ok(Some(_))))
    }
}

impl Subject {
    fn look(&mut self, pid: u32) {
        if self.ended {
            return;
        }
        // A reload gives the master a new probe besides the old one, which goes away some time later.
        if let Ok(Some((_, mapping, probe))) = find(pid)
            && probe.generation_us != self.last.generation_us
        {
            self.mapping = mapping;
            self.first = probe.clone();
            self.last = probe;
            return;
        }
        match read_probe(&self.memory, &self.mapping) {
            Ok(probe) => self.last = probe,
            Err(ProbeError::Memory(_)) => self.ended = true,
            // The reading before it stands.
            Err(_) => {}
        }
    }

    /// A reading, unless the process has ended or the reading changed too much meanwhile.
    fn read(&self) -> Option<Probe> {
        if self.ended {
            return None;
        }
        read_probe(&self.memory, &self.mapping).ok()
    }

    /// Calls of a function in the time watched.
    fn calls(&self, index: usize, function: &ProbeFunction) -> u64 {
        let before = self.first.functions.get(index);
        let before = before
            .filter(|before| before.name == function.name)
            .map_or(0, |before| before.calls);
        function.calls.saturating_sub(before)
    }

    fn watched(&self, pid: u32) -> Watched {
        let probe = &self.last;
        let functions = probe.functions.iter().enumerate();
        Watched {
            pid,
            ended: self.ended,
            counting: probe.counting,
            functions: functions
                .map(|(index, function)| FunctionSeen {
                    name: function.name.clone(),
                    calls: self.calls(index, function),
                    installed: installed(function, probe.counting),
                    captured_references: function.captured_references,
                    search_cut: function.search_cut,
                })
                .collect(),
            events: probe.events.as_ref().map(|events| EventsSeen {
                totals: EventTotals {
                    start: events.start,
                    stop: events.stop,
                    abort: events.abort,
                    flush: events.flush,
                    lost: events.starts_overflow,
                },
                starts: events.starts.iter().map(fate).collect(),
            }),
            probe_errors: probe.errors,
            functions_overflow: probe.functions_overflow,
        }
    }
}

fn fate(start: &throughline_target::ProbeStart) -> StartFate {
    let place = StartPlace {
        source: start.source.clone(),
        line: start.line,
        op: start.op.clone(),
    };
    StartFate::new(place, start.compiled, start.aborted, start.reason.clone())
}

fn is_wrapped(function: &ProbeFunction) -> bool {
    matches!(
        function.installed,
        ProbeInstalled::BeforeLoad | ProbeInstalled::AfterLoad
    )
}

fn installed(function: &ProbeFunction, counting: bool) -> std::result::Result<Installed, String> {
    match &function.installed {
        ProbeInstalled::BeforeLoad => Ok(Installed::BeforeLoad),
        ProbeInstalled::AfterLoad => Ok(Installed::AfterLoad),
        ProbeInstalled::Pending if !counting => {
            Err("the probe was started without counting".into())
        }
        ProbeInstalled::Pending => Err(
            "no module of this name, and no function that begins on this line, has been loaded"
                .into(),
        ),
        ProbeInstalled::NotFound { note } => Err(note.clone()),
    }
}

/// The newest probe of a process, if it has one.
fn find(pid: u32) -> Result<Option<(LiveProcess, Mapping, Probe)>, ProbeError> {
    let memory = LiveProcess::open(pid)?;
    let maps = parse_maps(&memory.maps()?);
    let mut newest: Option<(Mapping, Probe)> = None;
    let mut refused = None;
    for mapping in probe_mappings(&maps.mappings) {
        match read_probe(&memory, mapping) {
            Ok(probe)
                if newest
                    .as_ref()
                    .is_none_or(|(_, known)| known.generation_us < probe.generation_us) =>
            {
                newest = Some((mapping.clone(), probe));
            }
            Ok(_) => {}
            Err(error) => refused = Some(error),
        }
    }
    match (newest, refused) {
        (Some((mapping, probe)), _) => Ok(Some((memory, mapping, probe))),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}
