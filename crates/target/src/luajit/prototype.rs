//! Function prototypes: where a Lua function was defined, and which line an instruction is of.

use std::fmt;

use thiserror::Error;

use super::layout::Layout;
use super::{GCT, POINTER_MASK, gct};
use crate::memory::{Block, Memory, MemoryError};

/// Bytes of a chunk name that are kept. `loadstring(code)` without a name makes all of the code the
/// name, so there is no natural bound.
const CHUNK_NAME_MAX: u64 = 4096;

/// Instructions of a prototype at most: `LJ_MAX_BCINS` (lj_def.h) is 2^26, which no function that a
/// person or a template wrote comes near; 2^22 keeps one hostile header from costing 256 MB.
pub(super) const INSTRUCTIONS_MAX: u32 = 1 << 22;

/// Why a prototype could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrototypeError {
    /// The memory could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No prototype lies there (any more): it was collected, or the pointer was none.
    #[error("no function prototype there: {what}")]
    NotAPrototype {
        /// What gave it away.
        what: &'static str,
    },
    /// It changed between two reads, twice in a row.
    #[error("the function prototype changed while it was read")]
    Changed,
}

/// Why an instruction has no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoLine {
    /// The function was loaded from bytecode without debug information (`luajit -b`).
    #[error("bytecode without debug information")]
    Stripped,
    /// The address is not of this function's bytecode.
    #[error("not an instruction of this function")]
    Outside,
}

/// A function prototype as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// Address of the `GCproto`.
    pub address: u64,
    /// Address of the first instruction, the function header; `GCfunc.pc` points here.
    pub bytecode_start: u64,
    /// Instructions, the header included.
    pub instructions: u32,
    /// The chunk name as Lua has it: `@file`, `=name`, or the source text itself. The first 4,096
    /// bytes of it.
    pub chunk_name: Vec<u8>,
    /// True when the name went on.
    pub chunk_name_cut: bool,
    /// Line of `function`; 0 for a whole file.
    pub first_line: u32,
    /// Lines down to its `end`.
    pub line_count: u32,
    /// The first root trace that starts in this function, 0 for none.
    pub first_trace: u16,
    lines: Lines,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lines {
    Stripped,
    /// By instruction after the header, relative to the first line.
    Bytes(Vec<u8>),
    Words(Vec<u8>),
    DoubleWords(Vec<u8>),
}

impl Prototype {
    /// True when `pc`, which points behind an instruction as saved PCs and return links do, is of
    /// this function.
    pub fn contains(&self, pc: u64) -> bool {
        self.index_before(pc).is_some()
    }

    /// The line of the instruction before `pc_after`. A saved PC and a return link point behind the
    /// instruction that runs; of the address of an instruction itself ask with 4 added.
    pub fn line_at(&self, pc_after: u64) -> Result<u32, NoLine> {
        let index = self.index_before(pc_after).ok_or(NoLine::Outside)?;
        // The header instruction stands on the line of `function`, and has no entry.
        let Some(entry) = index.checked_sub(1) else {
            return match self.lines {
                Lines::Stripped => Err(NoLine::Stripped),
                _ => Ok(self.first_line),
            };
        };
        let entry = entry as usize;
        let delta = match &self.lines {
            Lines::Stripped => return Err(NoLine::Stripped),
            Lines::Bytes(lines) => lines.get(entry).map(|&line| u32::from(line)),
            Lines::Words(lines) => {
                field::<2>(lines, entry).map(|line| u32::from(u16::from_le_bytes(line)))
            }
            Lines::DoubleWords(lines) => field::<4>(lines, entry).map(u32::from_le_bytes),
        };
        delta
            .map(|delta| self.first_line.wrapping_add(delta))
            .ok_or(NoLine::Outside)
    }

    /// Index of the instruction before `pc`.
    fn index_before(&self, pc: u64) -> Option<u32> {
        let after = pc.checked_sub(self.bytecode_start)?;
        let count = u32::try_from(after / 4).ok()?;
        (after % 4 == 0 && (1..=self.instructions).contains(&count)).then(|| count - 1)
    }

    /// The chunk's name for people: the path of a file, the given name, or `[string "..."]` with
    /// the first line of the source. Control characters and bytes that are no UTF-8 are escaped.
    pub fn source(&self) -> String {
        match self.chunk_name.split_first() {
            Some((b'@' | b'=', name)) => escape(name),
            _ => {
                let mut lines = self
                    .chunk_name
                    .splitn(2, |&byte| byte == b'\n' || byte == b'\r');
                let line = lines.next().unwrap_or_default();
                let shown = line.get(..STRING_SOURCE_MAX).unwrap_or(line);
                let cut = shown.len() < line.len() || lines.next().is_some() || self.chunk_name_cut;
                format!(
                    "[string \"{}{}\"]",
                    escape(shown),
                    if cut { "..." } else { "" }
                )
            }
        }
    }

    /// True for one of LuaJIT's own functions that is written in Lua (`builtin:` in its messages).
    pub fn is_builtin(&self) -> bool {
        self.first_line == u32::MAX
    }
}

/// Bytes of source text that are shown for a chunk that has no name; Lua itself shows 60 with the
/// decoration (`LUA_IDSIZE`).
const STRING_SOURCE_MAX: usize = 44;

fn field<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
    let start = index.checked_mul(N)?;
    bytes.get(start..start.checked_add(N)?)?.try_into().ok()
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

impl fmt::Display for Prototype {
    /// `source:line` of the definition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_builtin() {
            write!(f, "builtin:{}", self.source())
        } else {
            write!(f, "{}:{}", self.source(), self.first_line)
        }
    }
}

/// Reads the prototype whose bytecode starts at `bytecode_start` (the `pc` of a Lua function).
///
/// The target keeps running: a prototype that differs after it was read is read once more.
pub fn prototype(
    memory: &dyn Memory,
    layout: &Layout,
    bytecode_start: u64,
) -> Result<Prototype, PrototypeError> {
    match read_stable(memory, layout, bytecode_start) {
        Err(PrototypeError::Changed) => read_stable(memory, layout, bytecode_start),
        other => other,
    }
}

fn read_stable(
    memory: &dyn Memory,
    layout: &Layout,
    bytecode_start: u64,
) -> Result<Prototype, PrototypeError> {
    let before = Header::read(memory, layout, bytecode_start)?;
    let (chunk_name, chunk_name_cut) = read_chunk_name(memory, layout, before.chunk_name)?;
    let lines = read_lines(memory, &before)?;
    let after = Header::read(memory, layout, bytecode_start)?;
    if (Header { trace: 0, ..after }) != (Header { trace: 0, ..before }) {
        return Err(PrototypeError::Changed);
    }
    Ok(Prototype {
        address: before.address,
        bytecode_start,
        instructions: before.instructions,
        chunk_name,
        chunk_name_cut,
        first_line: before.first_line,
        line_count: before.line_count,
        first_trace: after.trace,
        lines,
    })
}

/// Instructions that are read at a time on the way back to a function's start.
const BACKWARD_STEP: u64 = 512;
/// Instructions that are gone back at most; functions that are compiled are shorter.
const BACKWARD_MAX: u64 = 1 << 16;

/// Address of the first instruction of the function that the instruction at `pc` is of.
///
/// A function header is the first instruction of every function and stands nowhere else, so the
/// nearest one at or before `pc` is it, if the prototype in front of it says so too. `None` when it
/// does not, or when nothing is there.
pub fn bytecode_start(memory: &dyn Memory, layout: &Layout, pc: u64) -> Option<u64> {
    if !pc.is_multiple_of(4) {
        return None;
    }
    let mut end = pc.checked_add(4)?;
    let limit = pc.saturating_sub(4 * BACKWARD_MAX);
    while end > limit {
        // Whole steps, so that a page before the function that cannot be read stops nothing.
        let start = (end - 1) & !(4 * BACKWARD_STEP - 1);
        let words = memory
            .read_vec(start, end - start, 4 * BACKWARD_STEP)
            .ok()?;
        let header = words
            .chunks_exact(4)
            .rposition(|instruction| instruction[0] >= layout.opcodes.funcf);
        if let Some(index) = header {
            let found = start + 4 * index as u64;
            let header = Header::read(memory, layout, found).ok()?;
            let inside = (pc - found) / 4 < u64::from(header.instructions);
            return inside.then_some(found);
        }
        end = start;
    }
    None
}

/// Number of instructions of the function whose first instruction is at `bytecode_start`.
pub(super) fn instructions(
    memory: &dyn Memory,
    layout: &Layout,
    bytecode_start: u64,
) -> Option<u32> {
    let header = Header::read(memory, layout, bytecode_start).ok()?;
    Some(header.instructions)
}

#[derive(PartialEq, Eq)]
struct Header {
    address: u64,
    instructions: u32,
    chunk_name: u64,
    first_line: u32,
    line_count: u32,
    line_info: u64,
    trace: u16,
}

impl Header {
    fn read(
        memory: &dyn Memory,
        layout: &Layout,
        bytecode_start: u64,
    ) -> Result<Header, PrototypeError> {
        let wrong = |what| Err(PrototypeError::NotAPrototype { what });
        let at = &layout.prototype;
        let Some(address) = bytecode_start.checked_sub(at.size).filter(|at| at % 8 == 0) else {
            return wrong("not an address of one");
        };
        let block = memory.read_vec(address, at.size, at.size)?;
        let block = Block(&block);
        if block.u8(GCT) != gct::PROTOTYPE {
            return wrong("another type of object lies there");
        }
        let header = Header {
            address,
            instructions: block.u32(at.sizebc),
            chunk_name: block.u64(at.chunkname) & POINTER_MASK,
            first_line: block.u32(at.firstline),
            line_count: block.u32(at.numline),
            line_info: block.u64(at.lineinfo) & POINTER_MASK,
            trace: block.u16(at.trace),
        };
        if !(1..=INSTRUCTIONS_MAX).contains(&header.instructions) {
            return wrong("its number of instructions makes no sense");
        }
        let size = u64::from(block.u32(at.sizept));
        let end = address.saturating_add(size);
        if at.size + 4 * u64::from(header.instructions) > size {
            return wrong("its size does not fit its number of instructions");
        }
        let lines_end = header.line_info.saturating_add(header.lines_len());
        if header.line_info != 0 && (header.line_info < bytecode_start || lines_end > end) {
            return wrong("its line numbers lie outside of it");
        }
        Ok(header)
    }

    /// Bytes of one entry of `lineinfo` (`lj_debug_line`, lj_debug.c).
    fn line_width(&self) -> u64 {
        match self.line_count {
            0..256 => 1,
            256..65_536 => 2,
            _ => 4,
        }
    }

    fn lines_len(&self) -> u64 {
        self.line_width() * u64::from(self.instructions - 1)
    }
}

fn read_chunk_name(
    memory: &dyn Memory,
    layout: &Layout,
    string: u64,
) -> Result<(Vec<u8>, bool), PrototypeError> {
    if memory.read_u8(string.wrapping_add(GCT))? != gct::STRING {
        return Err(PrototypeError::NotAPrototype {
            what: "its chunk name is not a string",
        });
    }
    let len = u64::from(memory.read_u32(string.wrapping_add(layout.string.len))?);
    let kept = len.min(CHUNK_NAME_MAX);
    let name = memory.read_vec(
        string.wrapping_add(layout.string.data),
        kept,
        CHUNK_NAME_MAX,
    )?;
    Ok((name, kept < len))
}

fn read_lines(memory: &dyn Memory, header: &Header) -> Result<Lines, PrototypeError> {
    if header.line_info == 0 {
        return Ok(Lines::Stripped);
    }
    let len = header.lines_len();
    let bytes = memory.read_vec(header.line_info, len, 4 * u64::from(INSTRUCTIONS_MAX))?;
    Ok(match header.line_width() {
        1 => Lines::Bytes(bytes),
        2 => Lines::Words(bytes),
        _ => Lines::DoubleWords(bytes),
    })
}

#[cfg(test)]
#[path = "prototype_tests.rs"]
mod tests;
