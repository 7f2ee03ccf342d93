//! The memory of the Lua probe (`probe/throughline.lua`): counts of calls, and what LuaJIT's compiler did.
//!
//! The probe keeps both in a private mapping of a memfd, which every worker has its own copy of.
//! FORMATS.md describes the bytes. There is one writer, which does not know that it is read: a
//! reading is taken twice, and given only when both agree as far as counters that go on counting can.
//!
//! The bytes are foreign. Sizes are checked before anything is read by them, numbers before they are
//! given, and text is given as it is: whoever prints it escapes it.

use thiserror::Error;

use crate::maps::Mapping;
use crate::memory::{Memory, MemoryError};

/// What the kernel shows as the path of the mapping.
const PATH: &[u8] = b"/memfd:throughline-probe (deleted)";

const MAGIC: &[u8; 8] = b"TLPROBE1";
const HEADER_BYTES: usize = 248;
const FUNCTION_BYTES: usize = 256;
const START_BYTES: usize = 320;
/// Greater numbers than the probe's own (256 and 2,048), for probes to come.
const FUNCTIONS_MAX: u32 = 4096;
const STARTS_MAX: u32 = 16_384;

/// Doubles hold whole numbers up to here without a gap.
const COUNT_MAX: f64 = 9_007_199_254_740_992.0;
/// More calls than any function can have between the two halves of a reading.
const COUNT_STEP_MAX: u64 = 100_000_000;
/// How often a reading is tried again when the two halves do not agree.
const TRIES: usize = 8;

const NO_FUNCTION: u32 = u32::MAX;

/// Why the memory of a probe could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// It is not there, or may not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It does not begin with the probe's magic number: another program's, or one that is being made.
    #[error("it does not begin as a probe's memory does")]
    NoProbe,
    /// A size or a number in it is impossible.
    #[error("{what} is impossible")]
    Damaged {
        /// Which field.
        what: &'static str,
    },
    /// It went on changing in a way that counters do not.
    #[error("it changed while it was read")]
    ChangedWhileRead,
}

/// One reading of a probe's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// When the probe was started, in microseconds since 1970: tells the probes of two reloads apart.
    pub generation_us: u64,
    /// Whether functions were wrapped at all.
    pub counting: bool,
    /// What the compiler did, if the probe records it.
    pub events: Option<ProbeEvents>,
    /// The functions, in the order in which they were named.
    pub functions: Vec<ProbeFunction>,
    /// Functions that had no room.
    pub functions_overflow: u64,
    /// Errors that the probe met and kept to itself.
    pub errors: u64,
    /// Address in the process of nginx's pointer to its count of requests; 0 for none.
    pub requests_pointer: u64,
    /// Index of the function that runs once per request.
    pub requests_function: Option<usize>,
}

/// A function that was to be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFunction {
    /// The name it was asked for by.
    pub name: String,
    /// Calls since the probe was started, those that a worker inherited included.
    pub calls: u64,
    /// Whether and when it was wrapped.
    pub installed: ProbeInstalled,
    /// References to the function itself, which bypass the counter.
    pub captured_references: u32,
    /// The search for them was cut short: there may be more.
    pub search_cut: bool,
    /// It takes `...`.
    pub is_vararg: bool,
    /// It was named by file and line, and replaced wherever it was referred to.
    pub is_local: bool,
}

/// When a function was wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeInstalled {
    /// When its module had just been loaded.
    BeforeLoad,
    /// Later: others may hold it.
    AfterLoad,
    /// Its module has not been loaded.
    Pending,
    /// There is no such function.
    NotFound {
        /// What the probe says about it.
        note: String,
    },
}

/// What LuaJIT's compiler did since the probe was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeEvents {
    /// Attempts to record a trace, of every kind.
    pub start: u64,
    /// Traces that were compiled.
    pub stop: u64,
    /// Attempts that were aborted.
    pub abort: u64,
    /// Flushes of all traces.
    pub flush: u64,
    /// Where root traces began.
    pub starts: Vec<ProbeStart>,
    /// Attempts whose start had no room.
    pub starts_overflow: u64,
}

/// A bytecode at which LuaJIT tried to begin root traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStart {
    /// Chunk name; the end of one that is too long.
    pub source: String,
    /// Line; of a function, its first.
    pub line: u32,
    /// Name of the bytecode.
    pub op: String,
    /// Attempts.
    pub attempts: u64,
    /// Attempts that became a trace.
    pub compiled: u64,
    /// Attempts that were aborted and counted against the start.
    pub aborted: u64,
    /// Attempts that were aborted to be tried again at once.
    pub retried: u64,
    /// Why the last one was aborted; empty if none was.
    pub reason: String,
}

/// The mappings of a process that are a probe's by their name. Old ones may be there besides the one in use.
pub fn probe_mappings(maps: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    maps.iter().filter(|mapping| {
        mapping.path.as_deref() == Some(PATH)
            && mapping.permissions.read
            && mapping.permissions.write
            && mapping.offset == 0
    })
}

/// Reads the memory of a probe.
pub fn read_probe(memory: &impl Memory, mapping: &Mapping) -> Result<Probe, ProbeError> {
    for _ in 0..TRIES {
        let first = parse_probe(&read_bytes(memory, mapping)?);
        let second = parse_probe(&read_bytes(memory, mapping)?);
        if let (Ok(first), Ok(second)) = (&first, &second) {
            if follows(first, second) {
                return Ok(second.clone());
            }
        } else if first == second {
            return second;
        }
    }
    Err(ProbeError::ChangedWhileRead)
}

/// The requests that nginx has counted, by the pointer that a probe published; `None` while it points nowhere.
pub fn read_requests(memory: &impl Memory, pointer: u64) -> Result<Option<u64>, MemoryError> {
    match memory.read_u64(pointer)? {
        0 => Ok(None),
        counter => memory.read_u64(counter).map(Some),
    }
}

fn read_bytes(memory: &impl Memory, mapping: &Mapping) -> Result<Vec<u8>, ProbeError> {
    let limit = mapping.size();
    let header = memory.read_vec(mapping.start, HEADER_BYTES as u64, limit)?;
    let sizes = Sizes::of(&header)?;
    Ok(memory.read_vec(mapping.start, sizes.whole() as u64, limit)?)
}

/// Whether `second` may be what `first` has become in a moment.
fn follows(first: &Probe, second: &Probe) -> bool {
    let count = |a: u64, b: u64| b.checked_sub(a).is_some_and(|step| step <= COUNT_STEP_MAX);
    let functions = first.functions.iter().zip(&second.functions);
    let mut same = first.generation_us == second.generation_us
        && functions.fold(true, |same, (a, b)| {
            same && a.name == b.name && count(a.calls, b.calls)
        });
    if let (Some(a), Some(b)) = (&first.events, &second.events) {
        same &= count(a.start, b.start) && count(a.stop, b.stop) && count(a.abort, b.abort);
        // A start that is being written has an odd sequence number, and parsing refuses it.
        same &=
            a.starts.iter().zip(&b.starts).all(|(a, b)| {
                a.source == b.source && a.line == b.line && count(a.aborted, b.aborted)
            });
    }
    same
}

/// The numbers in the header that decide how much is read.
struct Sizes {
    functions_max: usize,
    functions_used: usize,
    starts_used: usize,
}

impl Sizes {
    fn of(header: &[u8]) -> Result<Self, ProbeError> {
        let fields = Fields(header);
        if header.get(..8) != Some(MAGIC) {
            return Err(ProbeError::NoProbe);
        }
        let is = |at, size: usize| fields.u32(at).map(|value| value as usize == size);
        if !(is(8, HEADER_BYTES)? && is(12, FUNCTION_BYTES)? && is(16, START_BYTES)?) {
            return Err(ProbeError::Damaged {
                what: "the size of its parts",
            });
        }
        let within = |at, used_at, limit: u32, what| {
            let (max, used) = (fields.u32(at)?, fields.u32(used_at)?);
            if max > limit || used > max {
                return Err(ProbeError::Damaged { what });
            }
            Ok((max as usize, used as usize))
        };
        let (functions_max, functions_used) =
            within(20, 28, FUNCTIONS_MAX, "the number of its functions")?;
        let (_, starts_used) = within(24, 32, STARTS_MAX, "the number of its starts")?;
        Ok(Self {
            functions_max,
            functions_used,
            starts_used,
        })
    }

    fn starts_at(&self) -> usize {
        HEADER_BYTES + self.functions_max * FUNCTION_BYTES
    }

    fn whole(&self) -> usize {
        self.starts_at() + self.starts_used * START_BYTES
    }
}

/// Reads the bytes of a probe's memory, which may end after the last start in use.
pub fn parse_probe(bytes: &[u8]) -> Result<Probe, ProbeError> {
    let sizes = Sizes::of(bytes)?;
    let header = Fields(bytes);
    let flags = header.u32(36)?;
    let part = |start: usize, len: usize| {
        let end = start.saturating_add(len);
        bytes
            .get(start..end)
            .map(Fields)
            .ok_or(ProbeError::Damaged { what: "its length" })
    };
    let functions = (0..sizes.functions_used)
        .map(|index| {
            function(&part(
                HEADER_BYTES + index * FUNCTION_BYTES,
                FUNCTION_BYTES,
            )?)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let events = if flags & 2 == 0 {
        None
    } else {
        let starts = (0..sizes.starts_used)
            .map(|index| start(&part(sizes.starts_at() + index * START_BYTES, START_BYTES)?))
            .collect::<Result<Vec<_>, _>>()?;
        Some(ProbeEvents {
            start: header.count(48)?,
            stop: header.count(56)?,
            abort: header.count(64)?,
            flush: header.count(72)?,
            starts,
            starts_overflow: header.count(80)?,
        })
    };
    let requests_function = match header.u32(112)? {
        NO_FUNCTION => None,
        index if (index as usize) < functions.len() => Some(index as usize),
        _ => {
            return Err(ProbeError::Damaged {
                what: "the function that counts requests",
            });
        }
    };
    Ok(Probe {
        generation_us: header.count(40)?,
        counting: flags & 1 != 0,
        events,
        functions,
        functions_overflow: header.count(88)?,
        errors: header.count(96)?,
        requests_pointer: header.u64(104)?,
        requests_function,
    })
}

fn function(fields: &Fields<'_>) -> Result<ProbeFunction, ProbeError> {
    let flags = fields.u32(16)?;
    let installed = match fields.u32(8)? {
        0 => ProbeInstalled::Pending,
        1 => ProbeInstalled::BeforeLoad,
        2 => ProbeInstalled::AfterLoad,
        3 => ProbeInstalled::NotFound {
            note: fields.text(192, 64, fields.u16(22)?, Keeps::Start)?,
        },
        _ => {
            return Err(ProbeError::Damaged {
                what: "the state of a function",
            });
        }
    };
    Ok(ProbeFunction {
        name: fields.text(24, 168, fields.u16(20)?, Keeps::Start)?,
        calls: fields.count(0)?,
        installed,
        captured_references: fields.u32(12)?,
        search_cut: flags & 1 != 0,
        is_vararg: flags & 2 != 0,
        is_local: flags & 4 != 0,
    })
}

fn start(fields: &Fields<'_>) -> Result<ProbeStart, ProbeError> {
    if !fields.u32(0)?.is_multiple_of(2) {
        return Err(ProbeError::ChangedWhileRead);
    }
    let op = fields.bytes(48, 8)?;
    let op = op.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(ProbeStart {
        source: fields.text(56, 168, fields.u16(44)?, Keeps::End)?,
        line: fields.u32(4)?,
        op: String::from_utf8_lossy(op).into_owned(),
        attempts: fields.count(8)?,
        compiled: fields.count(16)?,
        aborted: fields.count(24)?,
        retried: fields.count(32)?,
        reason: fields.text(224, 96, fields.u16(46)?, Keeps::Start)?,
    })
}

/// Which part of a text that is too long was kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Start,
    End,
}

/// Little-endian fields of a block of foreign bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes(&self, at: usize, len: usize) -> Result<&[u8], ProbeError> {
        self.0
            .get(at..at.saturating_add(len))
            .ok_or(ProbeError::Damaged { what: "its length" })
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], ProbeError> {
        let bytes = self.bytes(at, N)?;
        bytes
            .try_into()
            .map_err(|_| ProbeError::Damaged { what: "its length" })
    }

    fn u16(&self, at: usize) -> Result<u16, ProbeError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32, ProbeError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, ProbeError> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// A whole number that the probe keeps in a double.
    fn count(&self, at: usize) -> Result<u64, ProbeError> {
        let value = f64::from_bits(self.u64(at)?);
        // The time of the start has a fraction.
        if (0.0..=COUNT_MAX).contains(&value) {
            Ok(value as u64)
        } else {
            Err(ProbeError::Damaged { what: "a count" })
        }
    }

    /// Text in a field of `size` bytes whose length was `len` before it was cut to fit.
    fn text(&self, at: usize, size: usize, len: u16, keeps: Keeps) -> Result<String, ProbeError> {
        let len = usize::from(len);
        let text = String::from_utf8_lossy(self.bytes(at, len.min(size))?).into_owned();
        Ok(match keeps {
            _ if len <= size => text,
            Keeps::Start => text + "\u{2026}",
            Keeps::End => format!("\u{2026}{text}"),
        })
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
