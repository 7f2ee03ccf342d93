//! What happened between two pulses.
//!
//! Everything is derived from what is left in memory, so counts are lower bounds: aborts of side traces,
//! traces that were compiled and thrown away between two pulses, and all but one of several flushes
//! between two pulses leave nothing.

use std::collections::BTreeMap;

use super::super::scan::Vm;
use super::ops::Ops;
use super::parameters::Parameters;
use super::stamp::{JitPulse, PulseSlot};

/// Something that happened since the pulse before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JitEvent {
    /// A trace was compiled.
    Stop {
        /// Its number.
        number: u32,
    },
    /// Recording was aborted at a start.
    Abort {
        /// Address of the start.
        pc: u64,
        /// How often.
        count: u32,
        /// Number of the last reason.
        reason: u16,
    },
    /// A start was given up.
    Blacklist {
        /// Address of the start.
        pc: u64,
        /// Number of the last reason that is known.
        reason: u16,
    },
    /// Every trace was thrown away.
    Flush {
        /// Why, as far as the pulse before tells.
        cause: FlushCause,
    },
}

/// Why everything was thrown away, judged by how full the caches were at the pulse before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushCause {
    /// There was no room for another area of machine code (`maxmcode`).
    MachineCodeFull {
        /// Bytes that were allocated.
        allocated: u64,
        /// Bytes that may be.
        max: u64,
    },
    /// The table of traces was full (`maxtrace`).
    TraceTableFull {
        /// Traces that existed.
        traces: u32,
        /// Traces that may exist.
        max: u32,
    },
    /// Neither: `jit.flush()` or the C interface, or a cache that filled up since the pulse before.
    Asked,
}

/// What is known of one start over the whole watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchedStart {
    /// Aborts, those that its slot told at the beginning included.
    pub aborts: u32,
    /// Times that its slot was lost to another start or a flush, and it began anew.
    pub restarts: u32,
}

/// Compares pulses.
#[derive(Debug)]
pub struct JitWatch {
    given_up: [bool; 256],
    parameters: Option<Parameters>,
    last: JitPulse,
    starts: BTreeMap<u64, WatchedStart>,
}

/// Starts that are remembered; beyond that new ones are not summed up.
const STARTS_MAX: usize = 100_000;

/// Share of the table of traces from which a flush is put down to it: the last traces may come and
/// the table be emptied between two pulses.
const NEARLY_FULL: f64 = 0.9;

/// Without other witnesses so many traces must vanish at once to be a flush of all: single ones are
/// thrown away by `jit.flush(f)`.
const FLUSHED_TOGETHER: usize = 4;

impl JitWatch {
    /// Begins with a pulse; what it shows had happened before.
    pub fn new(vm: &Vm, parameters: Option<Parameters>, first: JitPulse) -> JitWatch {
        let mut watch = JitWatch {
            given_up: Ops::new(vm.layout.opcodes).given_up(),
            parameters,
            starts: BTreeMap::new(),
            last: first,
        };
        for slot in watch.last.penalties.clone() {
            watch.count(slot.pc, slot.aborts, false);
        }
        watch
    }

    /// Starts with an abort that a slot told, by address.
    pub fn starts(&self) -> &BTreeMap<u64, WatchedStart> {
        &self.starts
    }

    /// What happened since the pulse before.
    pub fn see(&mut self, now: JitPulse) -> Vec<JitEvent> {
        let mut events = Vec::new();
        let flushed = was_flushed(&self.last, &now);
        if flushed {
            let cause = self.flush_cause();
            events.push(JitEvent::Flush { cause });
        }
        for (number, &address) in (0..).zip(&now.traces) {
            let before = self.last.traces.get(number as usize).copied().unwrap_or(0);
            if address != 0 && (flushed || address != before) {
                events.push(JitEvent::Stop { number });
            }
        }
        let last = std::mem::replace(&mut self.last, now.clone());
        for (was, is) in last.penalties.iter().zip(&now.penalties) {
            self.compare(was, is, flushed, &mut events);
        }
        events
    }

    fn compare(
        &mut self,
        was: &PulseSlot,
        is: &PulseSlot,
        flushed: bool,
        events: &mut Vec<JitEvent>,
    ) {
        if is.pc == 0 {
            return;
        }
        let same_life = was.pc == is.pc && !flushed && is.value >= was.value;
        let given_up = |slot: &PulseSlot| self.given_up.get(usize::from(slot.op)) == Some(&true);
        let gives_up = given_up(is) && !(same_life && given_up(was));
        let before = if same_life { was.aborts } else { 0 };
        // The abort that gives up leaves the value as it was.
        let count = is.aborts.saturating_sub(before) + u32::from(gives_up);
        if count > 0 {
            self.count(is.pc, count, !same_life);
            events.push(JitEvent::Abort {
                pc: is.pc,
                count,
                reason: is.reason,
            });
        }
        if gives_up {
            events.push(JitEvent::Blacklist {
                pc: is.pc,
                reason: is.reason,
            });
        }
    }

    fn count(&mut self, pc: u64, aborts: u32, new_life: bool) {
        if pc == 0 || (self.starts.len() >= STARTS_MAX && !self.starts.contains_key(&pc)) {
            return;
        }
        let known = self.starts.contains_key(&pc);
        let start = self.starts.entry(pc).or_default();
        start.aborts = start.aborts.saturating_add(aborts);
        start.restarts += u32::from(new_life && known);
    }

    fn flush_cause(&self) -> FlushCause {
        let Some(parameters) = &self.parameters else {
            return FlushCause::Asked;
        };
        let traces = self.last.traces.iter().filter(|&&trace| trace != 0).count();
        let max = parameters.traces_max();
        if traces as f64 >= NEARLY_FULL * f64::from(max) {
            let traces = u32::try_from(traces).unwrap_or(u32::MAX);
            return FlushCause::TraceTableFull { traces, max };
        }
        let (allocated, max) = (
            self.last.machine_code.allocated,
            parameters.machine_code_max(),
        );
        if allocated > 0 && allocated.saturating_add(parameters.machine_code_area()) > max {
            return FlushCause::MachineCodeFull { allocated, max };
        }
        FlushCause::Asked
    }
}

/// A flush empties the slots, frees all machine code and takes every trace out of the table
/// (`lj_trace_flushall`, lj_trace.c); nothing else does the first two.
fn was_flushed(last: &JitPulse, now: &JitPulse) -> bool {
    let emptied = last
        .penalties
        .iter()
        .zip(&now.penalties)
        .any(|(was, is)| was.pc != 0 && is.pc == 0);
    let (had, has) = (last.machine_code.allocated, now.machine_code.allocated);
    let freed = has < had || (has == had && had > 0 && last.newest_area != now.newest_area);
    let before: Vec<(usize, u64)> = (0..)
        .zip(last.traces.iter().copied())
        .filter(|&(_, trace)| trace != 0)
        .collect();
    let none_left = before.len() >= FLUSHED_TOGETHER
        && before
            .iter()
            .all(|&(number, trace)| now.traces.get(number) != Some(&trace));
    emptied || freed || none_left
}
