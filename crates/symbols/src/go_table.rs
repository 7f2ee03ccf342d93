//! Go's pclntab: the table of functions, files and lines that the Go runtime itself needs, so that it
//! stays in a stripped program (`-ldflags "-s -w"`).
//!
//! Layouts, from `debug/gosym/pclntab.go` and `runtime/symtab.go` of the Go source:
//!
//! | magic | since | function table |
//! |---|---|---|
//! | `fffffffb` | 1.2 | pairs of words (address, offset from the start), names from the start |
//! | `fffffffa` | 1.16 | pairs of words, offsets from `pclnOffset`, separate sub-tables |
//! | `fffffff0` | 1.18 | pairs of u32, addresses relative to the start of Go's code |
//! | `fffffff1` | 1.20 | the same, other spelling of generated names |
//!
//! Read in place: nothing is allocated but the answer. The inlined calls of Go are not here but in
//! DWARF; a table of them in the runtime's read-only data is not read.

use std::ops::Range;
use std::sync::Arc;

use object::elf;
use object::read::elf::{Rela as _, SectionHeader as _};
use rustc_hash::FxHashMap;

use crate::bytes::SharedBytes;
use crate::elf::{Elf, LE, Rela, Section};
use crate::lookup::SourceLine;

/// Word size: only 64-bit programs are read.
const WORD: usize = 8;
const MAX_FUNCTIONS: u64 = 1 << 24;
/// Places that look like the table's header; each costs a look at the whole file.
const MAX_CANDIDATES: usize = 8;
/// Steps through one function's line program; the largest generated functions need tens of thousands.
const MAX_LINE_STEPS: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Go1_2,
    Go1_16,
    /// Also 1.20.
    Go1_18,
}

/// The table, located and checked.
#[derive(Debug)]
pub(crate) struct GoTable {
    file: SharedBytes,
    table: Range<usize>,
    version: Version,
    /// Instructions are multiples of it: 1 on x86, 4 on ARM.
    quantum: u64,
    functions: usize,
    /// What offsets of addresses count from, since 1.18.
    text_start: u64,
    at: SubTables,
}

/// Offsets from the table's start.
#[derive(Debug, Clone, Copy, Default)]
struct SubTables {
    names: usize,
    units: usize,
    files: usize,
    programs: usize,
    functions: usize,
}

/// A function's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoFunction {
    pub start: u64,
    /// Offset of its description from the table's start.
    description: usize,
}

/// What lies above the frame of a function of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoFrame {
    /// The caller's frame.
    Caller {
        /// From the stack pointer up to the return address, in bytes.
        bytes: u64,
    },
    /// Nothing: the function is the first of a goroutine or of a thread.
    Entry,
    /// The frame of a caller that runs on another stack, from which this function switched away.
    OtherStack,
}

impl GoTable {
    /// Finds the table by its section's name, or by its magic number in read-only data when the
    /// file shows that it comes from Go.
    pub fn find(elf: &Elf<'_>, file: &SharedBytes) -> Option<Self> {
        let named = elf
            .sections()
            .iter()
            .filter(|section| section.name.ends_with(b".gopclntab"))
            .find_map(|section| {
                let range = section.file_range(file.len())?;
                Self::read(elf, file, section.address(), range)
            });
        named.or_else(|| Self::scan(elf, file))
    }

    fn scan(elf: &Elf<'_>, file: &SharedBytes) -> Option<Self> {
        if !is_go(elf) {
            return None;
        }
        // Honest sections share no bytes, so together they are no larger than the file.
        let mut left = file.len();
        data_sections(elf)
            .map_while(|section| {
                let range = section.file_range(file.len()).unwrap_or_default();
                left = left.checked_sub(range.len())?;
                Some((section.address(), range))
            })
            .flat_map(|(address, range)| magic_numbers(file, address, range))
            .take(MAX_CANDIDATES)
            .find_map(|(address, table)| Self::read(elf, file, address, table))
    }

    fn read(elf: &Elf<'_>, file: &SharedBytes, address: u64, table: Range<usize>) -> Option<Self> {
        let bytes = file.slice(&table)?;
        let version = match u32_at(bytes, 0)? {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 | 0xffff_fff1 => Version::Go1_18,
            _ => return None,
        };
        let quantum = *bytes.get(6)?;
        let plausible = bytes.get(4..6)? == [0, 0]
            && matches!(quantum, 1 | 2 | 4)
            && usize::from(*bytes.get(7)?) == WORD;
        let word = |index: usize| u64_at(bytes, 8 + index * WORD);
        let functions = word(0).filter(|&count| (1..MAX_FUNCTIONS).contains(&count))?;
        let offset = |index: usize| usize::try_from(word(index)?).ok();
        let at = match version {
            Version::Go1_2 => SubTables {
                functions: 8 + WORD,
                ..SubTables::default()
            },
            Version::Go1_16 => SubTables {
                names: offset(2)?,
                units: offset(3)?,
                files: offset(4)?,
                programs: offset(5)?,
                functions: offset(6)?,
            },
            Version::Go1_18 => SubTables {
                names: offset(3)?,
                units: offset(4)?,
                files: offset(5)?,
                programs: offset(6)?,
                functions: offset(7)?,
            },
        };
        let mut found = Self {
            file: file.clone(),
            table: table.clone(),
            version,
            quantum: u64::from(quantum),
            functions: usize::try_from(functions).ok()?,
            text_start: 0,
            at,
        };
        // The end of the function table must lie inside, and so must everything before it.
        found.entry(found.functions)?;
        if !plausible {
            return None;
        }
        if version == Version::Go1_18 {
            let field = address.checked_add((8 + 2 * WORD) as u64)?;
            let stated = (field, word(2)?);
            found.text_start = text_start(elf, address, stated)?;
        }
        Some(found)
    }

    fn bytes(&self) -> &[u8] {
        self.file.slice(&self.table).unwrap_or_default()
    }

    /// (address, offset of the description) of a function; the last one is the end of the code.
    fn entry(&self, index: usize) -> Option<(u64, usize)> {
        let bytes = self.bytes();
        if self.version == Version::Go1_18 {
            let at = self.at.functions.checked_add(index.checked_mul(8)?)?;
            let address = self.text_start.wrapping_add(u64::from(u32_at(bytes, at)?));
            let is_end = index == self.functions;
            let offset = if is_end { 0 } else { u32_at(bytes, at + 4)? };
            Some((address, self.at.functions + offset as usize))
        } else {
            let at = self
                .at
                .functions
                .checked_add(index.checked_mul(2 * WORD)?)?;
            let address = u64_at(bytes, at)?;
            let is_end = index == self.functions;
            let offset = if is_end { 0 } else { u64_at(bytes, at + WORD)? };
            let base = match self.version {
                Version::Go1_2 => 0,
                _ => self.at.functions,
            };
            Some((address, base.checked_add(usize::try_from(offset).ok()?)?))
        }
    }

    /// The function that covers `address`.
    pub fn function(&self, address: u64) -> Option<GoFunction> {
        let (mut low, mut high) = (0, self.functions);
        if address < self.entry(0)?.0 || address >= self.entry(high)?.0 {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= address {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (start, description) = self.entry(low)?;
        Some(GoFunction { start, description })
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.functions
    }

    /// The `index`-th u32 after the address in a function's description.
    fn field(&self, function: GoFunction, index: usize) -> Option<u32> {
        let address_bytes = match self.version {
            Version::Go1_18 => 4,
            Version::Go1_2 | Version::Go1_16 => WORD,
        };
        let at = function
            .description
            .checked_add(address_bytes + 4 * index)?;
        u32_at(self.bytes(), at)
    }

    /// The bytes of the function's name.
    pub fn name(&self, function: GoFunction) -> Option<&[u8]> {
        self.text(
            self.at
                .names
                .checked_add(self.field(function, 0)? as usize)?,
        )
        .filter(|name| !name.is_empty())
    }

    /// How the function keeps its frame at an address inside it, by the table from which Go's own
    /// unwinder reads it (pcsp).
    pub fn frame(&self, function: GoFunction, address: u64) -> Option<GoFrame> {
        // Where the runtime's own unwinder stops or changes stacks (`topofstack` and `gentraceback` in
        // runtime/traceback.go). Behind `mcall` runs the scheduler, on nobody's behalf.
        match self.name(function)? {
            b"runtime.goexit" | b"runtime.mstart" | b"runtime.mcall" | b"runtime.rt0_go" => {
                return Some(GoFrame::Entry);
            }
            b"runtime.systemstack"
            | b"runtime.morestack"
            | b"runtime.asmcgocall"
            | b"runtime.sigreturn"
            | b"runtime.sigreturn__sigaction" => {
                return Some(GoFrame::OtherStack);
            }
            _ => {}
        }
        let program = self.field(function, 3)?;
        let bytes = match self.value(function, program, address) {
            Some(bytes) => u64::try_from(bytes).ok()?,
            // A function that never moves the stack pointer has no program.
            None if program == 0 => 0,
            None => return None,
        };
        Some(GoFrame::Caller { bytes })
    }

    /// The line of an address inside the function.
    pub fn line(&self, function: GoFunction, address: u64) -> Option<SourceLine> {
        let file = self.value(function, self.field(function, 4)?, address)?;
        let line = self.value(function, self.field(function, 5)?, address)?;
        let file = usize::try_from(file).ok()?;
        let file_at = match self.version {
            // Number 0 is the count of the files.
            Version::Go1_2 if file == 0 => return None,
            Version::Go1_2 => {
                let files_at = self.at.functions + self.functions * 2 * WORD + WORD;
                let files = u32_at(self.bytes(), files_at)? as usize;
                u32_at(self.bytes(), files.checked_add(file.checked_mul(4)?)?)? as usize
            }
            Version::Go1_16 | Version::Go1_18 => {
                let unit = self.field(function, 7)? as usize;
                let index = unit.checked_add(file)?.checked_mul(4)?;
                let offset = u32_at(self.bytes(), self.at.units.checked_add(index)?)?;
                self.at.files.checked_add(offset as usize)?
            }
        };
        let path = String::from_utf8_lossy(self.text(file_at)?);
        Some(SourceLine {
            file: Arc::from(path.as_ref()),
            line: u32::try_from(line).ok().filter(|&line| line > 0),
        })
    }

    /// Runs the program at `offset`: pairs of (change of the value, bytes of code it holds for).
    fn value(&self, function: GoFunction, offset: u32, address: u64) -> Option<i32> {
        if offset == 0 {
            return None;
        }
        let at = self.at.programs.checked_add(offset as usize)?;
        let mut program = self.bytes().get(at..)?;
        let mut value: i32 = -1;
        let mut end = function.start;
        for step in 0..MAX_LINE_STEPS {
            let change = varint(&mut program)?;
            if change == 0 && step > 0 {
                return None;
            }
            // Zigzag: the lowest bit is the sign.
            let half = (change >> 1).cast_signed();
            value = value.wrapping_add(if change & 1 == 1 { !half } else { half });
            end = end.checked_add(u64::from(varint(&mut program)?) * self.quantum)?;
            if address < end {
                return Some(value);
            }
        }
        None
    }

    fn text(&self, at: usize) -> Option<&[u8]> {
        let from = self.bytes().get(at..)?;
        let window = from.get(..crate::Name::MAX_BYTES).unwrap_or(from);
        window.get(..memchr::memchr(0, window)?)
    }
}

/// Where a header may start: the tail common to all magic numbers, with what a header has after it.
fn magic_numbers(
    file: &SharedBytes,
    address: u64,
    range: Range<usize>,
) -> impl Iterator<Item = (u64, Range<usize>)> {
    let bytes = file.slice(&range).unwrap_or_default();
    memchr::memmem::find_iter(bytes, b"\xff\xff\xff\0\0")
        .filter_map(|tail| tail.checked_sub(1))
        .filter(move |&start| {
            let head = bytes.get(start..).unwrap_or_default();
            start.is_multiple_of(WORD)
                && matches!(
                    head,
                    [0xf0 | 0xf1 | 0xfa | 0xfb, _, _, _, _, _, 1 | 2 | 4, 8, ..]
                )
        })
        .filter_map(move |start| {
            let address = address.checked_add(start as u64)?;
            Some((address, range.start + start..range.end))
        })
}

/// The linkers of Go and of C leave one of these sections even when they strip.
fn is_go(elf: &Elf<'_>) -> bool {
    [
        ".go.buildinfo",
        ".note.go.buildid",
        ".gosymtab",
        ".go.module",
    ]
    .iter()
    .any(|name| elf.section(name).is_some())
}

/// Where pclntab lies in position-independent and externally linked programs.
fn data_sections<'e, 'a>(elf: &'e Elf<'a>) -> impl Iterator<Item = &'e Section<'a>> {
    elf.sections().iter().filter(|section| {
        section.header.sh_flags(LE).contains(elf::SHF_ALLOC) && !section.is_executable()
    })
}

/// The words of `runtime.moduledata` before `minpc`, `maxpc` and `text`: a pointer to the table,
/// six slices and one pointer. The same from 1.16 to 1.27.
const MODULEDATA_MINPC: u64 = (1 + 6 * 3 + 1) * WORD as u64;
const MODULEDATA_TEXT: u64 = MODULEDATA_MINPC + 2 * WORD as u64;

/// Where Go's code starts. The header states it up to 1.25 (by a relocation in a
/// position-independent program); later only `runtime.moduledata` does, which starts with a pointer
/// to the table. `.text` may start with C code.
fn text_start(elf: &Elf<'_>, table: u64, (field, stated): (u64, u64)) -> Option<u64> {
    let code = elf.code();
    let is_code = |address: &u64| code.find(*address).is_some();
    if stated != 0 {
        return Some(stated).filter(is_code);
    }
    let pointers = Pointers::read(elf);
    pointers
        .relocated
        .get(&field)
        .copied()
        .filter(is_code)
        .or_else(|| {
            pointers.to(table).find_map(|module| {
                let lowest = pointers.at(module.checked_add(MODULEDATA_MINPC)?)?;
                let text = pointers.at(module.checked_add(MODULEDATA_TEXT)?)?;
                (is_code(&lowest) && is_code(&text) && text <= lowest).then_some(text)
            })
        })
        .or_else(|| elf.section(".text").map(|text| text.address()))
}

/// Pointers in data: relocated ones, or the words themselves.
struct Pointers<'e, 'a> {
    elf: &'e Elf<'a>,
    relocated: FxHashMap<u64, u64>,
}

impl<'e, 'a> Pointers<'e, 'a> {
    fn read(elf: &'e Elf<'a>) -> Self {
        let relative = |rela: &&Rela| match elf.machine {
            elf::EM_X86_64 => rela.r_type(LE, false) == elf::R_X86_64_RELATIVE,
            elf::EM_AARCH64 => rela.r_type(LE, false) == elf::R_AARCH64_RELATIVE,
            _ => false,
        };
        let relocations: &[Rela] = elf
            .sections()
            .iter()
            .find(|section| section.name == b".rela.dyn" || section.name == b".rela")
            .filter(|section| section.header.sh_type(LE) == elf::SHT_RELA)
            .and_then(|section| section.header.data_as_array(LE, elf.data).ok())
            .unwrap_or_default();
        let relocated = relocations
            .iter()
            .filter(relative)
            .map(|rela| (rela.r_offset(LE), rela.r_addend(LE).cast_unsigned()))
            .collect();
        Self { elf, relocated }
    }

    fn at(&self, address: u64) -> Option<u64> {
        let relocated = self.relocated.get(&address).copied();
        relocated.or_else(|| u64_at(self.elf.bytes_at(address)?, 0))
    }

    /// Addresses of words that point to `target`.
    fn to(&self, target: u64) -> impl Iterator<Item = u64> {
        let relocated = self.relocated.iter();
        let relocated = relocated.filter(move |(_, to)| **to == target);
        let plain = data_sections(self.elf)
            .filter(|section| section.header.sh_flags(LE).contains(elf::SHF_WRITE))
            .filter_map(|section| {
                let bytes = self
                    .elf
                    .data
                    .get(section.file_range(self.elf.data.len())?)?;
                Some((section.address(), bytes))
            })
            .flat_map(move |(start, bytes)| {
                bytes
                    .chunks_exact(WORD)
                    .enumerate()
                    .filter(move |(_, word)| *word == target.to_le_bytes())
                    .filter_map(move |(index, _)| start.checked_add((index * WORD) as u64))
            });
        relocated.map(|(&from, _)| from).chain(plain)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u64::from_le_bytes(*field))
}

/// Seven bits a byte, the lowest first; bits beyond 32 are an error.
fn varint(program: &mut &[u8]) -> Option<u32> {
    let mut value: u32 = 0;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) = program.split_first()?;
        *program = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
