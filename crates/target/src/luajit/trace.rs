//! Machine code of the JIT compiler: where it lies, and where the trace starts that it is of.

use std::ops::Range;

use thiserror::Error;

use super::scan::Vm;
use super::{GCT, POINTER_MASK, gct};
use crate::memory::{Block, Memory, MemoryError};

/// Why a trace could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The memory could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No trace has this number (any more): numbers are free again after a flush.
    #[error("there is no trace {number}")]
    None {
        /// The number asked for.
        number: u32,
    },
    /// No trace's machine code holds the address.
    #[error("no trace has machine code at {address:#x}")]
    NoneAt {
        /// The address asked for.
        address: u64,
    },
    /// It was another one at the end of reading than at the start: it was freed or its number used
    /// anew.
    #[error("trace {number} changed while it was read")]
    Changed {
        /// The number asked for.
        number: u32,
    },
    /// What lies there cannot be a trace: the memory changed, or it never was one.
    #[error("trace {number} makes no sense: {what}")]
    Inconsistent {
        /// The number asked for.
        number: u32,
        /// What gave it away.
        what: &'static str,
    },
}

/// How a trace ends (`TraceLink`, lj_jit.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Incomplete.
    None,
    /// Continues in a root trace.
    Root,
    /// Loops to its own start.
    Loop,
    /// Tail recursion.
    TailRecursion,
    /// Up-recursion.
    UpRecursion,
    /// Down-recursion.
    DownRecursion,
    /// Falls back to the interpreter.
    Interpreter,
    /// Returns to the interpreter.
    Return,
    /// Stitched: calls a function that cannot be compiled and continues in another trace.
    Stitch,
    /// A number that no known version has.
    Unknown(u8),
}

impl LinkType {
    fn from_number(number: u8) -> LinkType {
        match number {
            0 => LinkType::None,
            1 => LinkType::Root,
            2 => LinkType::Loop,
            3 => LinkType::TailRecursion,
            4 => LinkType::UpRecursion,
            5 => LinkType::DownRecursion,
            6 => LinkType::Interpreter,
            7 => LinkType::Return,
            8 => LinkType::Stitch,
            other => LinkType::Unknown(other),
        }
    }
}

impl std::fmt::Display for LinkType {
    /// As `jit.util.traceinfo` names them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkType::None => "none",
            LinkType::Root => "root",
            LinkType::Loop => "loop",
            LinkType::TailRecursion => "tail-recursion",
            LinkType::UpRecursion => "up-recursion",
            LinkType::DownRecursion => "down-recursion",
            LinkType::Interpreter => "interpreter",
            LinkType::Return => "return",
            LinkType::Stitch => "stitch",
            LinkType::Unknown(number) => return write!(f, "unknown link type {number}"),
        })
    }
}

/// A compiled trace as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Its number, from 1.
    pub number: u32,
    /// Address of the `GCtrace`.
    pub address: u64,
    /// Address of the bytecode of the function it starts in, for [`prototype`](super::prototype).
    pub start_bytecode: u64,
    /// Address of the instruction it starts at; the line is that of `start_pc + 4` (see
    /// [`Prototype::line_at`](super::Prototype::line_at)). For a side trace, where its exit left
    /// the parent.
    pub start_pc: u64,
    /// The instruction it starts at as it was before it was patched (`BCIns`); of a side trace a
    /// `JMP` that stands for none.
    pub start_instruction: u32,
    /// Where it was entered from when it was recorded.
    pub origin: Origin,
    /// For a side trace, the root of its tree; `None` for a root trace.
    pub root: Option<u32>,
    /// The trace it continues in; `None` when there is none.
    pub link: Option<u32>,
    /// How it ends.
    pub link_type: LinkType,
    /// Its machine code.
    pub machine_code: Range<u64>,
    /// Snapshots, that is, places where it can be left.
    pub snapshots: u16,
    /// Side traces, of a root trace.
    pub children: u16,
    /// Bytes that its code has moved rsp down by.
    pub stack_adjustment: u16,
    /// The highest stack slot that it has checked to be there.
    pub top_slot: u8,
    /// The next root trace of the same prototype.
    pub next_root: Option<u32>,
    /// The next side trace of the same root.
    pub next_side: Option<u32>,
    pub(super) body: Body,
}

impl Trace {
    /// Number of the bytecode that it starts at, by the row's numbering (see [`Opcodes`](super::Opcodes)).
    pub fn start_op(&self) -> u8 {
        self.start_instruction.to_le_bytes()[0]
    }

    /// True when `other` is the same trace, read at another time: its links and its number of
    /// children may have changed since.
    pub fn is_same(&self, other: &Trace) -> bool {
        let identity = |trace: &Trace| {
            (
                (trace.number, trace.address, trace.machine_code.clone()),
                (
                    trace.start_bytecode,
                    trace.start_pc,
                    trace.start_instruction,
                ),
                (trace.snapshots, trace.body),
            )
        };
        identity(self) == identity(other)
    }
}

/// Where a trace was entered from when it was recorded. It may be entered from elsewhere too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A loop or a function that was hot: a root trace.
    Root,
    /// An exit of another trace that was hot: a side trace.
    Exit {
        /// That trace.
        trace: u32,
        /// Number of its snapshot.
        exit: u32,
    },
    /// The return of a function that cannot be compiled, which the trace before had called: a root
    /// trace that is stitched to it.
    Stitch {
        /// The trace before.
        trace: u32,
    },
}

/// Where the parts of a trace lie that are not in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Body {
    /// Address of IR instruction 0, were there one.
    pub ir: u64,
    /// Lowest constant, at most [`REF_BASE`].
    pub lowest_constant: u32,
    pub snapshots: u64,
    pub map: u64,
    /// Elements of the map.
    pub map_len: u32,
}

/// `REF_BASE`, the first IR instruction that is no constant (lj_ir.h).
pub(super) const REF_BASE: u32 = 0x8000;

/// Elements of a snapshot map at most: 65,535 snapshots of 255 entries and a program counter.
const MAP_LEN_MAX: u32 = 65_535 * (255 + 2);

/// The areas that hold machine code, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineCode {
    /// Address ranges.
    pub areas: Vec<Range<u64>>,
    /// True when the chain went on past what is looked at, or broke off.
    pub incomplete: bool,
}

impl MachineCode {
    /// True when `address` lies in one of them.
    pub fn contains(&self, address: u64) -> bool {
        self.areas.iter().any(|area| area.contains(&address))
    }
}

/// Areas that are looked at; OpenResty's default is 40 MiB in areas of 64 KiB, 640 areas.
const AREAS_MAX: usize = 8192;

/// Largest area: machine code lies within 2 GiB of the interpreter.
const AREA_BYTES_MAX: u64 = 1 << 31;

/// Walks the chain of machine-code areas. Each begins with {next, size} (`MCLink`, lj_mcode.c).
pub fn machine_code(memory: &dyn Memory, vm: &Vm) -> Result<MachineCode, MemoryError> {
    let mut code = MachineCode::default();
    let mut area = memory.read_u64(vm.jit_state().wrapping_add(vm.layout.jit.mcarea))?;
    let newest = area;
    while area != 0 {
        let mut link = [0; 16];
        let readable = memory.read(area, &mut link).is_ok();
        let (next, size) = (Block(&link).u64(0), Block(&link).u64(8));
        let end = area
            .checked_add(size)
            .filter(|_| (16..=AREA_BYTES_MAX).contains(&size));
        let Some(end) = end.filter(|_| readable && code.areas.len() < AREAS_MAX) else {
            code.incomplete = true;
            return Ok(code);
        };
        code.areas.push(area..end);
        // A chain that bites its tail was read while it changed.
        code.incomplete |= next == newest;
        area = if code.incomplete { 0 } else { next };
    }
    Ok(code)
}

/// Trace numbers are 16 bits wide (`TraceNo1`, lj_jit.h).
const TRACES_MAX: u32 = 1 << 16;

/// Length of the table of traces: numbers run from 1 to one below. 0 while none was ever compiled.
pub fn trace_count(memory: &dyn Memory, vm: &Vm) -> Result<u32, MemoryError> {
    let at = vm.jit_state().wrapping_add(vm.layout.jit.sizetrace);
    Ok(memory.read_u32(at)?.min(TRACES_MAX))
}

/// Reads the trace with this number.
pub fn trace(memory: &dyn Memory, vm: &Vm, number: u32) -> Result<Trace, TraceError> {
    if number == 0 || number >= trace_count(memory, vm)? {
        return Err(TraceError::None { number });
    }
    let table = memory.read_u64(vm.jit_state().wrapping_add(vm.layout.jit.trace))?;
    let address = memory.read_u64(table.wrapping_add(8 * u64::from(number)))? & POINTER_MASK;
    if address == 0 {
        return Err(TraceError::None { number });
    }
    read_trace(memory, vm, number, address)
}

/// The trace whose machine code holds `address`.
///
/// Looks at every trace; a caller that asks often keeps the answers and drops them when the trace
/// read again by its number is another one.
pub fn trace_at(memory: &dyn Memory, vm: &Vm, address: u64) -> Result<Trace, TraceError> {
    let count = u64::from(trace_count(memory, vm)?);
    let table = memory.read_u64(vm.jit_state().wrapping_add(vm.layout.jit.trace))?;
    let pointers = memory.read_vec(table, 8 * count, 8 * u64::from(TRACES_MAX))?;
    let fields = &vm.layout.trace;
    for (number, pointer) in (0u32..).zip(pointers.chunks_exact(8)) {
        let pointer = Block(pointer).u64(0) & POINTER_MASK;
        if number == 0 || pointer == 0 {
            continue;
        }
        let mut place = [0; 12];
        // A trace that is freed meanwhile is not the one that runs.
        if memory
            .read(pointer.wrapping_add(fields.szmcode), &mut place)
            .is_err()
        {
            continue;
        }
        let start = Block(&place).u64(fields.mcode - fields.szmcode);
        if address.wrapping_sub(start) < u64::from(Block(&place).u32(0)) {
            return read_trace(memory, vm, number, pointer);
        }
    }
    Err(TraceError::NoneAt { address })
}

fn read_trace(
    memory: &dyn Memory,
    vm: &Vm,
    number: u32,
    address: u64,
) -> Result<Trace, TraceError> {
    let trace = read_header(memory, vm, number, address)?;
    // `IR_BASE` carries the parent and its exit (lj_record_setup, lj_record.c).
    let base = memory.read_u64(trace.body.ir.wrapping_add(8 * u64::from(REF_BASE)))?;
    let half = |shift: u32| u32::from((base >> shift) as u16);
    let origin = match (half(0), half(16)) {
        (0, 0) => Origin::Root,
        (0, trace) => Origin::Stitch { trace },
        (trace, exit) => Origin::Exit { trace, exit },
    };
    Ok(Trace { origin, ..trace })
}

/// All but the origin, which reads as [`Origin::Root`].
pub(super) fn read_header(
    memory: &dyn Memory,
    vm: &Vm,
    number: u32,
    address: u64,
) -> Result<Trace, TraceError> {
    let wrong = |what| Err(TraceError::Inconsistent { number, what });
    let fields = &vm.layout.trace;
    let block = memory.read_vec(address, fields.size, fields.size)?;
    let block = Block(&block);
    if block.u8(GCT) != gct::TRACE {
        return wrong("another type of object lies there");
    }
    if u32::from(block.u16(fields.traceno)) != number {
        return wrong("it has another number");
    }
    let start = block.u64(fields.mcode);
    let size = u64::from(block.u32(fields.szmcode));
    let Some(end) = start.checked_add(size).filter(|_| size <= AREA_BYTES_MAX) else {
        return wrong("its machine code has no plausible size");
    };
    let body = Body {
        ir: block.u64(fields.ir),
        lowest_constant: block.u32(fields.nk),
        snapshots: block.u64(fields.snap),
        map: block.u64(fields.snapmap),
        map_len: block.u32(fields.nsnapmap),
    };
    if body.lowest_constant > REF_BASE
        || !(REF_BASE..2 * REF_BASE).contains(&block.u32(fields.nins))
    {
        return wrong("its IR has no plausible size");
    }
    if body.map_len > MAP_LEN_MAX {
        return wrong("its snapshots have no plausible size");
    }
    let start_prototype = block.u64(fields.startpt) & POINTER_MASK;
    let some = |number: u16| (number != 0).then_some(u32::from(number));
    Ok(Trace {
        number,
        address,
        start_bytecode: start_prototype.wrapping_add(vm.layout.prototype.size),
        start_pc: block.u64(fields.startpc),
        start_instruction: block.u32(fields.startins),
        origin: Origin::Root,
        root: some(block.u16(fields.root)),
        link: some(block.u16(fields.link)),
        link_type: LinkType::from_number(block.u8(fields.linktype)),
        machine_code: start..end,
        snapshots: block.u16(fields.nsnap),
        children: block.u16(fields.nchild),
        stack_adjustment: block.u16(fields.spadjust),
        top_slot: block.u8(fields.topslot),
        next_root: some(block.u16(fields.nextroot)),
        next_side: some(block.u16(fields.nextside)),
        body,
    })
}
