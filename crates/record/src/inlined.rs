//! Lua frames inside of machine code: what a trace has inlined at an address.
//!
//! The BPF program walks the Lua stack in memory, which ends at the function in which the trace was entered. What runs above
//! it is told by the trace's snapshots. They are read after the sample, so three things must agree before they are believed: the
//! trace is the same before and after reading, the VM said that this trace runs (or that a helper of it does), and the
//! instruction that the outermost inlined frame returns to is of the function that the walk found. Otherwise the sample keeps
//! the frames that were walked, and a flag says why.
//!
//! Traces are known by the address of their machine code: LuaJIT hands it out once, and after a flush it takes other areas
//! at random addresses (lj_mcode.c). Numbers are used anew at once.

use std::collections::BTreeMap;
use std::rc::Rc;

use throughline_profile::Flags;
use throughline_target::{
    FrameFunction, LiveProcess, Snapshot, SnapshotFrame, Trace, TraceError, Vm, snapshots, trace,
    trace_at, unseen,
};
use throughline_units::Nanos;
use throughline_wire::LuaFrame;

/// A trace that was looked at this long ago is looked at again before it is believed.
const TRACE_TRUSTED: Nanos = Nanos(50_000_000);
/// All traces are searched at most this often for an address that is in none that is known.
const SEARCHED_AGAIN: Nanos = Nanos(20_000_000);
/// Traces that are kept; LuaJIT numbers at most 65,535 at a time.
const KEPT_MAX: usize = 1 << 17;
/// A trace says that it runs in its first instructions, of which there are at most two before.
const ENTRY_BYTES: u64 = 32;

/// Why the frames of a sample in machine code were not expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExpanded {
    /// No trace has machine code at the address (any more): it was flushed, or the code is a stub between traces.
    NoTrace,
    /// The trace changed while it was read, or what it tells contradicts the Lua stack.
    Changed,
    /// The trace tells no snapshot for the address, or not what function a frame is of.
    NoSnapshot,
}

impl NotExpanded {
    /// What a sample is flagged with.
    pub fn flag(self) -> Flags {
        match self {
            Self::NoTrace => Flags::JIT_NO_TRACE,
            Self::Changed => Flags::JIT_TRACE_CHANGED,
            Self::NoSnapshot => Flags::JIT_NO_SNAPSHOT,
        }
    }
}

/// The frames that run at one snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct Expansion {
    /// Frames above that of the trace's base, innermost first, as the Lua stack would have them.
    pub frames: Vec<LuaFrame>,
    /// Behind the instruction of the innermost frame.
    pub pc: u64,
    /// The function of the base frame when a tail call has replaced the one on the Lua stack.
    pub base: Option<LuaFrame>,
    /// Behind the instruction of the base frame; `None` below a frame that tells none.
    pub base_pc: Option<u64>,
    /// Code of a function that was called or has returned since may be meant.
    pub at_or_inside: bool,
}

struct Known {
    trace: Trace,
    expansions: Vec<Option<Rc<Expansion>>>,
    offsets: throughline_target::Snapshots,
    checked: Nanos,
}

/// The traces of a VM that samples were in.
#[derive(Default)]
pub struct InlinedFrames {
    by_start: BTreeMap<u64, Known>,
    searched: Nanos,
}

/// Where a sample is in machine code.
#[derive(Clone, Copy)]
pub struct InMachineCode {
    /// The instruction pointer, or the byte before a return address.
    pub address: u64,
    /// `g->vmstate` when the sample was taken.
    pub vm_state: i32,
    /// CLOCK_MONOTONIC of the sample.
    pub now: Nanos,
}

impl InlinedFrames {
    /// The frames at an address of machine code.
    pub fn at(
        &mut self,
        memory: &LiveProcess,
        vm: &Vm,
        place: InMachineCode,
    ) -> Result<Rc<Expansion>, NotExpanded> {
        let start = self.known(memory, vm, place)?;
        let known = self.by_start.get(&start).ok_or(NotExpanded::NoTrace)?;
        let offset = place.address.wrapping_sub(start);
        let runs = u32::try_from(place.vm_state);
        if runs.is_ok_and(|number| number != known.trace.number) && offset >= ENTRY_BYTES {
            return Err(NotExpanded::Changed);
        }
        known
            .offsets
            .at(offset)
            .and_then(|index| known.expansions.get(index)?.clone())
            .ok_or(NotExpanded::NoSnapshot)
    }

    /// Start of the machine code that holds the address, once its trace is in `by_start`.
    fn known(
        &mut self,
        memory: &LiveProcess,
        vm: &Vm,
        place: InMachineCode,
    ) -> Result<u64, NotExpanded> {
        let before = self.by_start.range_mut(..=place.address).next_back();
        let Some((&start, known)) =
            before.filter(|(_, known)| known.trace.machine_code.contains(&place.address))
        else {
            let found = self.find(memory, vm, place)?;
            return self.learn(memory, vm, found, place.now);
        };
        if place.now - known.checked < TRACE_TRUSTED {
            return Ok(start);
        }
        known.checked = place.now;
        let number = known.trace.number;
        if trace(memory, vm, number).is_ok_and(|now| now.is_same(&known.trace)) {
            return Ok(start);
        }
        // It is gone. While nothing else has its machine code, what was there then is what it was.
        let Ok(found) = trace_at(memory, vm, place.address) else {
            return Ok(start);
        };
        self.by_start.remove(&start);
        self.learn(memory, vm, found, place.now)?;
        Err(NotExpanded::Changed)
    }

    fn find(
        &mut self,
        memory: &LiveProcess,
        vm: &Vm,
        place: InMachineCode,
    ) -> Result<Trace, NotExpanded> {
        if let Ok(number @ 1..) = u32::try_from(place.vm_state)
            && let Ok(found) = trace(memory, vm, number)
            && found.machine_code.contains(&place.address)
        {
            return Ok(found);
        }
        if place.now - self.searched < SEARCHED_AGAIN {
            return Err(NotExpanded::NoTrace);
        }
        self.searched = place.now;
        trace_at(memory, vm, place.address).map_err(reason)
    }

    fn learn(
        &mut self,
        memory: &LiveProcess,
        vm: &Vm,
        found: Trace,
        now: Nanos,
    ) -> Result<u64, NotExpanded> {
        let read = snapshots(memory, vm, &found).map_err(reason)?;
        let unseen = unseen(memory, vm, &found, &read);
        let expansions = read.list.iter().zip(unseen);
        let expansions =
            expansions.map(|(snapshot, unseen)| expansion(snapshot, unseen).map(Rc::new));
        let start = found.machine_code.start;
        if self.by_start.len() >= KEPT_MAX {
            self.by_start.clear();
        }
        // Code that overlaps is of a trace that is gone.
        let overlapped: Vec<u64> = self
            .by_start
            .range(..found.machine_code.end)
            .rev()
            .take_while(|(_, known)| known.trace.machine_code.end > start)
            .map(|(&other, _)| other)
            .collect();
        for other in overlapped {
            self.by_start.remove(&other);
        }
        let known = Known {
            expansions: expansions.collect(),
            trace: found,
            offsets: read,
            checked: now,
        };
        self.by_start.insert(start, known);
        Ok(start)
    }
}

fn reason(error: TraceError) -> NotExpanded {
    match error {
        TraceError::None { .. } | TraceError::NoneAt { .. } | TraceError::Memory(_) => {
            NotExpanded::NoTrace
        }
        TraceError::Changed { .. } | TraceError::Inconsistent { .. } => NotExpanded::Changed,
    }
}

/// `None` when a function is not known.
fn expansion(snapshot: &Snapshot, at_or_inside: bool) -> Option<Expansion> {
    let frames: Option<Vec<LuaFrame>> = snapshot.frames.iter().map(lua_frame).collect();
    let pc = snapshot.pc.wrapping_add(4);
    let base = match (snapshot.tail_called, snapshot.base) {
        (false, _) => None,
        (true, function) => Some(walked(function?)),
    };
    Some(Expansion {
        frames: frames?,
        pc,
        base,
        base_pc: match snapshot.frames.last() {
            Some(frame) => frame.caller_pc(),
            None => Some(pc),
        },
        at_or_inside,
    })
}

fn lua_frame(frame: &SnapshotFrame) -> Option<LuaFrame> {
    Some(LuaFrame {
        link: frame.link,
        continuation_pc: frame.continuation_pc,
        ..walked(frame.function?)
    })
}

/// A function as the walk of the Lua stack tells it.
fn walked(function: FrameFunction) -> LuaFrame {
    let (code, ffid) = match function {
        FrameFunction::Lua { bytecode_start } => (bytecode_start, 0),
        FrameFunction::C { address } => (address, 1),
        FrameFunction::Fast { ffid } => (0, u32::from(ffid)),
    };
    LuaFrame {
        code,
        ffid,
        ..LuaFrame::default()
    }
}
