//! The state of a VM's JIT compiler, in one look: what is compiled, what was tried in vain, what was
//! given up, and how full its caches are.
//!
//! Everything is read from memory while the VM runs, so a look may be torn: [`census`] reads what
//! must not change (the table of traces, the penalty slots, the phase of the garbage collector)
//! before and after, and names what changed in [`Census::changed`]. The caller decides whether to
//! look again.
//!
//! What the VM does not keep cannot be told: which bytecode or IR instruction an abort names, aborts of
//! side traces, and a `pairs` loop that was given up (its `ITERN` becomes an ordinary `ITERC`, and the
//! `ITERL` behind it starts anew; `blacklist_pc`, lj_trace.c). A flush empties the penalty slots
//! (`lj_trace_flushall`), given-up starts stay given up.

mod calls;
mod copied;
mod heap;
mod look;
mod ops;
mod parameters;
mod penalty;
mod stamp;
mod starts;
mod watch;

use std::collections::BTreeMap;

pub use calls::{Callee, calls};
pub use copied::CopiedMemory;
pub use heap::{HeapSurvey, SurveyEnd};
pub use look::{census, place_of};
pub use parameters::{JitParameter, Parameters, parameters as jit_parameters};
pub use penalty::{ABORTS_TO_GIVE_UP, Penalty, abort_reason, derived_aborts};
pub use stamp::{JitPulse, PulseSlot, jit_pulse};
pub use starts::StartSummary;
pub use watch::{FlushCause, JitEvent, JitWatch, WatchedStart};

use super::prototype::Prototype;
use super::trace::{Trace, TraceError};

/// An instruction at which traces start or were meant to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Address of the first instruction of its function, for [`Census::prototype`].
    pub bytecode_start: u64,
    /// Its own address; its line is that of `pc + 4`.
    pub pc: u64,
    /// Its bytecode before anything was patched: `FORL`, `ITERL`, `ITERN`, `LOOP`, `FUNCF`; of a
    /// stitched trace the call, of a side trace the instruction at which its parent was left.
    pub op: &'static str,
}

/// A trace and the functions inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CensusTrace {
    /// The trace.
    pub trace: Trace,
    /// Where it starts; the error when no function is there any more.
    pub start: Place,
    /// First instructions of the functions whose bodies run inside it: those that its snapshots have
    /// frames of, without the one that it starts in unless that calls itself.
    pub inlined: Vec<u64>,
    /// First instructions of further functions that it holds as constants: bodies too short for a
    /// snapshot of their own, and functions that it merely handles.
    pub specialised_to: Vec<u64>,
    /// Why the snapshots could not be read; both lists are empty then.
    pub snapshots_error: Option<TraceError>,
    /// Instructions that its snapshots stand at or return to, sorted.
    pub places: Vec<u64>,
}

/// A start whose bytecode was patched so that it is never counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patched {
    /// The start, with the plain bytecode.
    pub start: Place,
    /// The bytecode that stands there: `IFORL`, `IITERL`, `ILOOP`, `IFUNCF` or `IFUNCV`.
    pub op: &'static str,
    /// True when the JIT compiler is switched off for the function (`jit.off(f)`), which patches in
    /// the same way; false when it was given up after too many aborts.
    pub switched_off: bool,
}

/// How full the areas of machine code are, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineCodeUse {
    /// In all areas.
    pub allocated: u64,
    /// Of those, not free at the newest area's end; what older areas had left over is never used.
    pub used: u64,
}

/// A part of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The table of traces.
    Traces,
    /// The penalty slots.
    Penalties,
    /// The functions that exist, and the bytecodes in them.
    Functions,
}

impl Part {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Part::Traces => "traces",
            Part::Penalties => "penalties",
            Part::Functions => "functions",
        }
    }
}

/// One look at a VM's JIT compiler.
#[derive(Debug, Clone)]
pub struct Census {
    /// Whether it is switched on (`jit.on()`).
    pub on: bool,
    /// Whether a trace was being recorded or assembled at the moment; it is in no list.
    pub recording: bool,
    /// Its parameters, unless the `jit` library was never opened.
    pub parameters: Option<Parameters>,
    /// Traces by number.
    pub traces: Vec<CensusTrace>,
    /// Traces that could not be read.
    pub unreadable: Vec<(u32, TraceError)>,
    /// Penalty slots in use, in the order of the slots.
    pub penalties: Vec<Penalty>,
    /// Patched starts, by address.
    pub patched: Vec<Patched>,
    /// Machine code.
    pub machine_code: MachineCodeUse,
    /// How many functions were looked through.
    pub heap: HeapSurvey,
    /// Every start of a root trace, penalty slot or patched bytecode.
    pub starts: Vec<StartSummary>,
    /// Parts that changed while they were read: what is said of them may be torn.
    pub changed: Vec<Part>,
    calls: BTreeMap<u64, Vec<Callee>>,
    prototypes: BTreeMap<u64, Prototype>,
}

impl Census {
    /// The function with this first instruction, for the places that are named here. `None` when it
    /// could not be read (any more).
    pub fn prototype(&self, bytecode_start: u64) -> Option<&Prototype> {
        self.prototypes.get(&bytecode_start)
    }

    /// What the function of a start calls, as far as its bytecode tells (see [`calls`]); empty for a
    /// function that no start is in.
    pub fn calls(&self, bytecode_start: u64) -> &[Callee] {
        self.calls.get(&bytecode_start).map_or(&[], Vec::as_slice)
    }
}
