//! The few words of a VM that tell whether its compile state changed: cheap enough to be read many
//! times a second.

use super::super::POINTER_MASK;
use super::super::scan::Vm;
use super::super::trace::trace_count;
use super::MachineCodeUse;
use super::penalty::{self, ABORTS_TO_GIVE_UP, SLOT_LEN, SLOTS, derived_aborts};
use crate::memory::{Block, Memory, MemoryError};

/// What changes when a trace is compiled, aborted or flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitPulse {
    /// Whether the compiler is switched on.
    pub on: bool,
    /// Whether a trace is being recorded or assembled.
    pub recording: bool,
    /// Addresses of traces by number, 0 for none. The one that is being recorded is not there.
    pub traces: Vec<u64>,
    /// The penalty slots, by index.
    pub penalties: Vec<PulseSlot>,
    /// Index of the slot that the next new start takes.
    pub next_slot: u32,
    /// Machine code.
    pub machine_code: MachineCodeUse,
    /// Address of the newest area of machine code, 0 for none.
    pub newest_area: u64,
}

/// A penalty slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PulseSlot {
    /// The instruction, 0 for a slot that is free.
    pub pc: u64,
    /// Aborts that its value tells.
    pub aborts: u32,
    /// Number of the last reason.
    pub reason: u16,
    /// The value.
    pub value: u16,
    /// Number of the bytecode that stands at `pc` now; 0 (a comparison, never a start) when it could
    /// not be read, or when the start had too few aborts to be given up.
    pub op: u8,
}

/// `JIT_F_ON` (lj_jit.h).
const FLAG_ON: u32 = 1;

/// Reads them. The table of traces is one read, its pointers are not followed.
pub fn jit_pulse(memory: &dyn Memory, vm: &Vm) -> Result<JitPulse, MemoryError> {
    let jit = vm.jit_state();
    let at = &vm.layout.jit;
    let count = u64::from(trace_count(memory, vm)?);
    let table = memory.read_u64(jit.wrapping_add(at.trace))?;
    let pointers = memory.read_vec(table, 8 * count, 8 << 16)?;
    let pointers = pointers
        .chunks_exact(8)
        .map(|pointer| Block(pointer).u64(0) & POINTER_MASK);
    // The trace that is being recorded is the first member of the `jit_State`.
    let traces = pointers.map(|trace| if trace == jit { 0 } else { trace });
    let raw = memory.read_vec(penalty::array(vm), SLOTS * SLOT_LEN, SLOTS * SLOT_LEN)?;
    let slots = penalty::slots(&raw).map(|slot| {
        let aborts = derived_aborts(slot.value);
        PulseSlot {
            pc: slot.pc,
            aborts,
            reason: slot.reason,
            value: slot.value,
            op: if aborts + 1 >= ABORTS_TO_GIVE_UP {
                memory.read_u8(slot.pc).unwrap_or(0)
            } else {
                0
            },
        }
    });
    let area = memory.read_vec(jit.wrapping_add(at.mcarea), AREA_LEN, AREA_LEN)?;
    Ok(JitPulse {
        on: memory.read_u32(jit.wrapping_add(at.flags))? & FLAG_ON != 0,
        recording: memory.read_u32(jit.wrapping_add(at.state))? != 0,
        traces: traces.collect(),
        penalties: slots.collect(),
        next_slot: memory.read_u32(jit.wrapping_add(at.penaltyslot))?,
        machine_code: machine_code_use(&Block(&area)),
        newest_area: Block(&area).u64(0),
    })
}

/// `mcarea`, `mctop`, `mcbot`, `szmcarea`, `szallmcarea`: five words in this order (`jit_State`,
/// lj_jit.h). Code grows down from the area's end to `mctop`, exit stubs up to `mcbot`.
const AREA_LEN: u64 = 40;

fn machine_code_use(area: &Block<'_>) -> MachineCodeUse {
    let (top, bottom, allocated) = (area.u64(8), area.u64(16), area.u64(32));
    let free = top.saturating_sub(bottom);
    MachineCodeUse {
        allocated,
        used: allocated.saturating_sub(free),
    }
}

/// Where the garbage collector is, by which a caller knows whether objects were freed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GcPhase {
    white: u8,
    state: u8,
    total: u64,
    pub root: u64,
    sweep: u64,
}

/// Phases in their order in a cycle (`GCS*`, lj_gc.h). White flips at the end of the atomic one.
const SWEEP_STRINGS: u8 = 3;
const SWEEP: u8 = 4;

impl GcPhase {
    /// {total, threshold, currentwhite, state, ..., root, sweep} of `GCState` (lj_obj.h), in which
    /// `root` lies 24 bytes behind its start.
    pub fn read(memory: &dyn Memory, vm: &Vm) -> Result<GcPhase, MemoryError> {
        let start = vm
            .global_state
            .wrapping_add(vm.layout.global.gc_root)
            .wrapping_sub(24);
        let block = memory.read_vec(start, 40, 40)?;
        let block = Block(&block);
        Ok(GcPhase {
            white: block.u8(16),
            state: block.u8(17),
            total: block.u64(0),
            root: block.u64(24),
            sweep: block.u64(32),
        })
    }

    /// True when no object can have left the chain between `before` and this.
    pub fn nothing_swept_since(&self, before: &GcPhase) -> bool {
        let unmoved = self == before;
        // How far in the cycle that begins after the sweep: marking, then the strings' sweep.
        let step = |phase: &GcPhase| u8::from(phase.state == SWEEP_STRINGS);
        let (from, to) = (step(before), step(self));
        let sweeping = before.state == SWEEP || self.state == SWEEP;
        // Without a sweep between, white is the same in one step and flipped from the first to the second.
        let one_cycle = from <= to && (before.white == self.white) == (from == to);
        unmoved || (!sweeping && one_cycle)
    }
}
