//! Snapshots of a trace: the Lua frames that run at each place of its machine code.
//!
//! A trace runs without Lua frames in memory: the functions that it has inlined exist only in its
//! snapshots, from which the interpreter's stack is built when the trace is left. A snapshot lists
//! the stack slots that differ from memory; slots that are parts of frames carry a mark, and their
//! values are constants of the trace: the link (a return address in bytecode, or a distance with a
//! type, as on the Lua stack) in one slot, the function in the slot below. Behind the slots stands
//! the bytecode instruction at which the interpreter would go on. (`snapshot_slots`,
//! `snapshot_framelinks`, lj_snap.c; `SnapShot`, `SNAP_*`, lj_jit.h; frame types, lj_frame.h.)
//!
//! Where the machine code of a snapshot begins is recorded since 2021, and told by the exits of the
//! guards before that. A snapshot is taken where a guard may fail, so code of a callee before its
//! first guard belongs to a snapshot of its caller.

use std::collections::BTreeMap;

use super::exits::code_offsets;
use super::prototype::bytecode_start;
use super::scan::Vm;
use super::trace::{REF_BASE, Trace, TraceError, read_header};
use super::{GCT, POINTER_MASK, gct};
use crate::memory::{Block, Memory, MemoryError};

/// A function as a frame of a trace has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameFunction {
    /// A Lua function.
    Lua {
        /// Address of its first instruction, for [`prototype`](super::prototype).
        bytecode_start: u64,
    },
    /// A C function.
    C {
        /// Address of its code.
        address: u64,
    },
    /// A function of LuaJIT's own library.
    Fast {
        /// Its number, for [`FastFunctionNames`](super::FastFunctionNames).
        ffid: u8,
    },
}

/// One Lua frame of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotFrame {
    /// Its function; `None` where the trace does not hold it and no instruction tells it.
    pub function: Option<FrameFunction>,
    /// The link word as it would stand on the Lua stack: the caller's PC, or a distance and a frame
    /// type (lj_frame.h).
    pub link: u64,
    /// The caller's PC when this is a continuation frame, else 0.
    pub continuation_pc: u64,
}

/// A place where a trace can be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Where its machine code begins, in bytes from the start of the trace's; `None` in versions
    /// that do not record it when the machine code does not tell it either.
    pub code_offset: Option<u32>,
    /// Address of the instruction at which the interpreter would go on, in the innermost frame.
    pub pc: u64,
    /// Frames above that of the trace's base (`jit_base`), innermost first.
    pub frames: Vec<SnapshotFrame>,
    /// The function of the base frame where the trace knows it: it differs from that on the Lua
    /// stack after a tail call.
    pub base: Option<FrameFunction>,
    /// True when the base frame's function was replaced by a tail call.
    pub tail_called: bool,
}

/// The snapshots of a trace, and the functions that are constants of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// In the order of their machine code.
    pub list: Vec<Snapshot>,
    /// Functions that the trace holds or is specialised to, inlined or called, each once. A function
    /// whose body has no snapshot is seen only here.
    pub functions: Vec<FrameFunction>,
}

impl Snapshots {
    /// Number of the snapshot that the code at `offset` (bytes from the start of the trace's machine
    /// code) belongs to; for a return address give the offset of the byte before. `None` where no
    /// offset is known.
    pub fn at(&self, offset: u64) -> Option<usize> {
        // Snapshots without code of their own share an offset with the next one.
        let after = self.list.partition_point(|snapshot| {
            snapshot
                .code_offset
                .is_some_and(|start| u64::from(start) <= offset)
        });
        after.checked_sub(1)
    }
}

/// `sizeof(SnapShot)`, in every version.
const SNAPSHOT_LEN: usize = 12;
/// Elements of the map behind the slots of a snapshot: {pc << 8, base slot}, u64 (`LJ_FR2`).
const FRAME_LINKS: usize = 2;
/// `SNAP_FRAME` and `SNAP_CONT` (lj_jit.h).
const ENTRY_FRAME: u32 = 0x1_0000;
const ENTRY_CONTINUATION: u32 = 0x2_0000;
/// `IR_KGC`, `IR_KKPTR`, `IR_KNUM`, `IR_KINT64` (lj_ir.h): constants that take two instructions, as
/// does `IR_KPTR` between the first two.
const IR_KGC: u8 = 24;
const IR_KKPTR: u8 = 26;
const IR_KNUM: u8 = 28;
const IR_KINT64: u8 = 29;
/// `IRT_PROTO`, `IRT_FUNC`, and the mask of types (lj_ir.h).
const IRT_PROTO: u8 = 7;
const IRT_FUNC: u8 = 8;
const IRT_TYPE: u8 = 0x1f;

/// Reads the snapshots of a trace that was read just now.
///
/// # Errors
/// [`TraceError::Changed`] when the trace is not the same any more at the end.
pub fn snapshots(memory: &dyn Memory, vm: &Vm, trace: &Trace) -> Result<Snapshots, TraceError> {
    let body = &trace.body;
    let wrong = |what| TraceError::Inconsistent {
        number: trace.number,
        what,
    };
    let len = SNAPSHOT_LEN as u64 * u64::from(trace.snapshots);
    let raw = memory.read_vec(body.snapshots, len, len)?;
    let len = 4 * u64::from(body.map_len);
    let map = memory.read_vec(body.map, len, len)?;
    let mut constants = Constants::read(memory, vm, trace)?;
    let places = places(&raw, &map).ok_or_else(|| wrong("its snapshots do not fit their map"))?;
    let mut read = Snapshots::default();
    for place in places {
        read.list.push(constants.snapshot(&place));
    }
    // Offsets are kept in 16 bits; code of more than 64 KiB makes them wrap.
    let mut wraps = 0;
    let mut last = 0;
    for snapshot in &mut read.list {
        if let Some(offset) = &mut snapshot.code_offset {
            let low = *offset;
            wraps += u32::from(low < last);
            last = low;
            *offset = low.saturating_add(wraps << 16);
        }
    }
    if read
        .list
        .iter()
        .any(|snapshot| snapshot.code_offset.is_none())
        && let Some(offsets) = code_offsets(memory, vm, trace)
    {
        for (snapshot, offset) in read.list.iter_mut().zip(offsets) {
            snapshot.code_offset = Some(offset);
        }
    }
    read.functions = constants.functions();
    let after = read_header(memory, vm, trace.number, trace.address)?;
    if !after.is_same(trace) {
        return Err(TraceError::Changed {
            number: trace.number,
        });
    }
    Ok(read)
}

/// One snapshot as it lies in memory.
struct Place<'a> {
    code_offset: Option<u32>,
    /// {slot (8 bits), flags (8), IR reference (16)}, by slot.
    entries: &'a [u8],
    pc: u64,
}

/// Cuts the map into snapshots: each has its entries and its frame links, and the next begins behind.
/// Versions before 2021 have no code offset, which moves the number of entries; the one that fits is
/// taken. `None` when neither does.
fn places<'a>(snapshots: &[u8], map: &'a [u8]) -> Option<Vec<Place<'a>>> {
    const WITH_OFFSET: (Option<u64>, u64) = (Some(6), 10);
    const WITHOUT: (Option<u64>, u64) = (None, 8);
    [WITH_OFFSET, WITHOUT]
        .into_iter()
        .find_map(|(offset_at, entries_at)| {
            let mut next = 0;
            let places: Option<Vec<_>> = snapshots
                .chunks_exact(SNAPSHOT_LEN)
                .map(|snapshot| {
                    let snapshot = Block(snapshot);
                    let (start, entries) = (snapshot.u32(0) as usize, snapshot.u8(entries_at));
                    let end = start + usize::from(entries);
                    if start != next {
                        return None;
                    }
                    next = end + FRAME_LINKS;
                    let pc = Block(map.get(4 * end..4 * next)?).u64(0) >> 8;
                    Some(Place {
                        code_offset: offset_at.map(|at| u32::from(snapshot.u16(at))),
                        entries: map.get(4 * start..4 * end)?,
                        pc,
                    })
                })
                .collect();
            places.filter(|_| 4 * next == map.len())
        })
}

/// The constants of a trace, and what is known of the functions among them.
struct Constants<'a> {
    memory: &'a dyn Memory,
    vm: &'a Vm,
    lowest: u32,
    ir: Vec<u8>,
    /// By address of the function object.
    functions: BTreeMap<u64, Option<FrameFunction>>,
    /// First instruction by an instruction, where a frame's function is no constant.
    starts: BTreeMap<u64, Option<u64>>,
}

impl<'a> Constants<'a> {
    fn read(memory: &'a dyn Memory, vm: &'a Vm, trace: &Trace) -> Result<Self, MemoryError> {
        let lowest = trace.body.lowest_constant.min(REF_BASE);
        let len = 8 * u64::from(REF_BASE - lowest);
        let at = trace.body.ir.wrapping_add(8 * u64::from(lowest));
        Ok(Constants {
            memory,
            vm,
            lowest,
            ir: memory.read_vec(at, len, len)?,
            functions: BTreeMap::new(),
            starts: BTreeMap::new(),
        })
    }

    /// Instruction `reference` as {operation, type, the 64 bits behind it}, when it is a constant of
    /// 64 bits: those take two instructions.
    fn constant(&self, reference: u32) -> Option<(u8, u8, u64)> {
        let at = 8 * reference.checked_sub(self.lowest)? as usize;
        let pair = Block(self.ir.get(at..at + 16)?);
        Some((pair.u8(5), pair.u8(4) & IRT_TYPE, pair.u64(8)))
    }

    fn number(&self, reference: u32) -> Option<u64> {
        let (operation, _, value) = self.constant(reference)?;
        matches!(operation, IR_KNUM | IR_KINT64).then_some(value)
    }

    fn function(&mut self, reference: u32) -> Option<FrameFunction> {
        let (operation, kind, value) = self.constant(reference)?;
        if (operation, kind) != (IR_KGC, IRT_FUNC) {
            return None;
        }
        let address = value & POINTER_MASK;
        if let Some(&known) = self.functions.get(&address) {
            return known;
        }
        let read = read_function(self.memory, self.vm, address);
        self.functions.insert(address, read);
        read
    }

    /// The Lua function that an instruction is of.
    fn function_of(&mut self, pc: u64) -> Option<FrameFunction> {
        let (memory, layout) = (self.memory, &self.vm.layout);
        let start = *self
            .starts
            .entry(pc)
            .or_insert_with(|| bytecode_start(memory, layout, pc));
        start.map(|bytecode_start| FrameFunction::Lua { bytecode_start })
    }

    fn snapshot(&mut self, place: &Place<'_>) -> Snapshot {
        let mut snapshot = Snapshot {
            code_offset: place.code_offset,
            pc: place.pc,
            frames: Vec::new(),
            base: None,
            tail_called: false,
        };
        // By slot: a frame has its function one below its link, and a continuation its PC two below.
        let (mut below, mut two_below) = ((u32::MAX, 0), (u32::MAX, 0));
        for entry in place.entries.chunks_exact(4) {
            let entry = Block(entry).u32(0);
            let (slot, reference) = (entry >> 24, entry & 0xffff);
            let function = (below.0 == slot.wrapping_sub(1)).then_some(below.1);
            match slot {
                0 => snapshot.base = self.function(reference),
                1 => snapshot.tail_called = entry & ENTRY_FRAME != 0,
                _ if entry & ENTRY_FRAME != 0 => {
                    let link = self.number(reference).unwrap_or(0);
                    let continuation_pc = (two_below.0 == slot - 2
                        && two_below.1 & ENTRY_CONTINUATION != 0)
                        .then(|| self.number(two_below.1 & 0xffff))
                        .flatten();
                    snapshot.frames.push(SnapshotFrame {
                        function: function.and_then(|entry| self.function(entry & 0xffff)),
                        link,
                        continuation_pc: continuation_pc.unwrap_or(0),
                    });
                }
                _ => {}
            }
            two_below = below;
            below = (slot, entry);
        }
        snapshot.frames.reverse();
        self.name_by_instructions(&mut snapshot);
        snapshot
    }

    /// A closure that is made anew each time is no constant: the trace is specialised to its
    /// prototype, and the instruction that runs in the frame tells it.
    fn name_by_instructions(&mut self, snapshot: &mut Snapshot) {
        let mut pc = Some(snapshot.pc);
        for index in 0..snapshot.frames.len() {
            let frame = snapshot.frames[index];
            if frame.function.is_none()
                && let Some(pc) = pc
            {
                snapshot.frames[index].function = self.function_of(pc);
            }
            pc = frame.caller_pc().map(|after| after.wrapping_sub(4));
        }
        if snapshot.tail_called
            && snapshot.base.is_none()
            && let Some(pc) = pc
        {
            snapshot.base = self.function_of(pc);
        }
    }

    /// Every function and prototype among the constants.
    fn functions(&mut self) -> Vec<FrameFunction> {
        let mut reference = self.lowest;
        let mut found = Vec::new();
        while reference < REF_BASE {
            match self.constant(reference) {
                Some((IR_KGC, IRT_FUNC, _)) => found.extend(self.function(reference)),
                Some((IR_KGC, IRT_PROTO, value)) => found.push(FrameFunction::Lua {
                    bytecode_start: (value & POINTER_MASK)
                        .wrapping_add(self.vm.layout.prototype.size),
                }),
                _ => {}
            }
            // The second half of a constant of 64 bits is no instruction.
            let wide = matches!(
                self.constant(reference),
                Some((IR_KGC..=IR_KKPTR | IR_KNUM | IR_KINT64, ..))
            );
            reference += if wide { 2 } else { 1 };
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Frame types (lj_frame.h): bits of a link.
const LINK_TYPE: u64 = 7;
const LINK_CONTINUATION: u64 = 2;

impl SnapshotFrame {
    /// The caller's PC, behind its call instruction, where the link tells it.
    pub fn caller_pc(&self) -> Option<u64> {
        match self.link & LINK_TYPE {
            0 | 4 if self.link != 0 => Some(self.link),
            LINK_CONTINUATION => Some(self.continuation_pc).filter(|&pc| pc != 0),
            _ => None,
        }
    }
}

fn read_function(memory: &dyn Memory, vm: &Vm, address: u64) -> Option<FrameFunction> {
    let at = &vm.layout.function;
    let block = memory.read_vec(address, at.f + 8, at.f + 8).ok()?;
    let block = Block(&block);
    if block.u8(GCT) != gct::FUNCTION {
        return None;
    }
    Some(match block.u8(at.ffid) {
        0 => FrameFunction::Lua {
            bytecode_start: block.u64(at.pc),
        },
        1 => FrameFunction::C {
            address: block.u64(at.f),
        },
        ffid => FrameFunction::Fast { ffid },
    })
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
