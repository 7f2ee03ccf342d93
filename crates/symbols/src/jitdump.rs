//! Jitdump files: the binary record of code that a JIT wrote, with times, moves and lines
//! (Node's `--perf-prof`, the JVM's libperf-jvmti, .NET, wasmtime).
//!
//! Layout (`tools/perf/Documentation/jitdump-specification.txt` of the kernel), little endian:
//!
//! | part | fields |
//! |---|---|
//! | file header, 40 bytes | magic u32 `4A695444`, version u32, total_size u32, elf_mach u32, pad u32, pid u32, timestamp u64, flags u64 |
//! | record header, 16 bytes | id u32, total_size u32, timestamp u64 |
//! | 0 code load | pid u32, tid u32, vma u64, address u64, size u64, index u64, name NUL, code |
//! | 1 code move | pid u32, tid u32, vma u64, old u64, new u64, size u64, index u64 |
//! | 2 debug info | address u64, count u64, then count times: address u64, line u32, column u32, file NUL |
//! | 3 close | |
//! | 4 unwinding info | skipped |

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::address_map::AddressMap;
use crate::demangle;
use crate::lookup::{Lookup, NameReason, SourceLine};
use crate::names::{NameId, Names};

const MAGIC: u32 = 0x4A69_5444;
const FILE_HEADER_BYTES: usize = 40;
const RECORD_HEADER_BYTES: usize = 16;
const LOAD_BYTES: usize = RECORD_HEADER_BYTES + 40;
const MOVE_BYTES: usize = RECORD_HEADER_BYTES + 48;

const MAX_NAME_BYTES: usize = 256 << 20;
/// Records of lines beyond this are skipped; one describes one function.
const MAX_DEBUG_RECORD_BYTES: usize = 4 << 20;
/// Lines kept, 20 bytes each.
const MAX_LINES: usize = 4 << 20;
/// Functions whose lines have come and whose code has not.
const MAX_ANNOUNCED: usize = 1 << 16;
/// Loads and moves kept, 48 bytes each.
const MAX_LOADS: usize = 1 << 20;

/// Why a file is no jitdump that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JitDumpError {
    /// The magic number is missing.
    #[error("not a jitdump file")]
    NotJitDump,
    /// Written on a machine of the other byte order.
    #[error("unsupported jitdump file: big endian")]
    BigEndian,
    /// A version other than 1.
    #[error("unsupported jitdump file: version {0}")]
    Version(u32),
    /// A header or a record states a size that cannot hold its own fields; what came before is kept.
    #[error("damaged jitdump file: a record of {0} bytes")]
    RecordSize(u32),
}

/// A jitdump file, read as it grows.
#[derive(Debug)]
pub struct JitDump {
    state: State,
    /// The part of the current record that has been read, up to `wanted` bytes.
    partial: Vec<u8>,
    /// Bytes to pass over before the next record.
    skip: u64,
    names: Names,
    loads: Vec<Load>,
    current: AddressMap<u32>,
    by_index: FxHashMap<u64, u32>,
    lines: Vec<Line>,
    /// Lines announced for code that is not loaded yet.
    announced: FxHashMap<u64, LineRange>,
    counts: JitDumpCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FileHeader,
    Records,
    Closed,
    Failed(JitDumpError),
}

#[derive(Debug, Clone, Copy)]
struct Load {
    start: u64,
    end: u64,
    time: u64,
    name: NameId,
    lines: LineRange,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    /// Relative to the function's start, so that a move keeps it.
    offset: u32,
    line: u32,
    file: NameId,
}

#[derive(Debug, Clone, Copy, Default)]
struct LineRange {
    start: u32,
    end: u32,
}

/// What became of the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitDumpCounts {
    /// Bytes read so far: where the next read of the file starts.
    pub bytes: u64,
    /// Functions loaded.
    pub loads: u64,
    /// Functions moved.
    pub moves: u64,
    /// Records whose fields contradict each other, or moves of unknown functions.
    pub damaged_records: u64,
    /// Records refused because a table was full.
    pub beyond_limit: u64,
    /// Records of kinds that carry no names.
    pub other_records: u64,
}

impl Default for JitDump {
    fn default() -> Self {
        Self::new()
    }
}

impl JitDump {
    /// An empty record.
    pub fn new() -> Self {
        Self {
            state: State::FileHeader,
            partial: Vec::new(),
            skip: 0,
            names: Names::with_limit(MAX_NAME_BYTES),
            loads: Vec::new(),
            current: AddressMap::default(),
            by_index: FxHashMap::default(),
            lines: Vec::new(),
            announced: FxHashMap::default(),
            counts: JitDumpCounts::default(),
        }
    }

    /// Reads the next bytes of the file; a record may be split between calls.
    ///
    /// # Errors
    ///
    /// When the file is no jitdump or its records lose their frame. Every later call gives the
    /// same error, and names read before keep answering.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), JitDumpError> {
        self.counts.bytes += bytes.len() as u64;
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Closed => return Ok(()),
                State::FileHeader | State::Records => {}
            }
            let skipped = self.skip.min(bytes.len() as u64);
            self.skip -= skipped;
            bytes = bytes
                .get(usize::try_from(skipped).unwrap_or(bytes.len())..)
                .unwrap_or_default();
            let missing = self.wanted().saturating_sub(self.partial.len());
            let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
            self.partial.extend_from_slice(taken);
            bytes = rest;
            if self.partial.len() < self.wanted() {
                if bytes.is_empty() {
                    return Ok(());
                }
                continue;
            }
            let record = std::mem::take(&mut self.partial);
            if let Err(error) = self.complete(&record) {
                self.state = State::Failed(error);
            }
        }
    }

    /// Bytes of the current record that must be there before it can be read.
    fn wanted(&self) -> usize {
        if self.state == State::FileHeader {
            return FILE_HEADER_BYTES;
        }
        let mut fields = Fields(&self.partial);
        let (Some(id), Some(total)) = (fields.u32(), fields.u32()) else {
            return RECORD_HEADER_BYTES;
        };
        let total = total as usize;
        let useful = match id {
            0 => LOAD_BYTES + crate::Name::MAX_BYTES,
            1 => MOVE_BYTES,
            2 if total <= MAX_DEBUG_RECORD_BYTES => total,
            _ => RECORD_HEADER_BYTES,
        };
        total.min(useful).max(RECORD_HEADER_BYTES)
    }

    /// Takes a file header or a record of which [`Self::wanted`] bytes are there.
    fn complete(&mut self, bytes: &[u8]) -> Result<(), JitDumpError> {
        if self.state == State::FileHeader {
            self.skip = file_header(bytes)?;
            self.state = State::Records;
            return Ok(());
        }
        let mut fields = Fields(bytes);
        let id = fields.u32().unwrap_or_default();
        let total = fields.u32().unwrap_or_default();
        let time = fields.u64().unwrap_or_default();
        let size_error = JitDumpError::RecordSize(total);
        self.skip = u64::from(total)
            .checked_sub(bytes.len() as u64)
            .ok_or(size_error)?;
        let read = match id {
            0 => self.code_load(fields, time),
            1 => self.code_move(fields, time),
            2 if self.skip == 0 => self.debug_info(fields),
            2 => None,
            3 => {
                self.state = State::Closed;
                Some(())
            }
            _ => {
                self.counts.other_records += 1;
                Some(())
            }
        };
        if read.is_none() {
            self.counts.damaged_records += 1;
        }
        Ok(())
    }

    fn code_load(&mut self, mut fields: Fields<'_>, time: u64) -> Option<()> {
        let _process_and_thread = fields.u64()?;
        let _vma = fields.u64()?;
        let start = fields.u64()?;
        let size = fields.u64()?;
        let index = fields.u64()?;
        let end = start.checked_add(size).filter(|&end| end > start)?;
        let name = fields.text()?;
        let Some(name) = self.names.add(name) else {
            self.counts.beyond_limit += 1;
            return Some(());
        };
        let lines = self.announced.remove(&start).unwrap_or_default();
        let load = Load {
            start,
            end,
            time,
            name,
            lines,
        };
        if self.add(load, index) {
            self.counts.loads += 1;
        }
        Some(())
    }

    fn code_move(&mut self, mut fields: Fields<'_>, time: u64) -> Option<()> {
        let _process_and_thread = fields.u64()?;
        let _vma = fields.u64()?;
        let _old = fields.u64()?;
        let start = fields.u64()?;
        let size = fields.u64()?;
        let index = fields.u64()?;
        let end = start.checked_add(size).filter(|&end| end > start)?;
        let old = *self.by_index.get(&index)?;
        let old = *self.loads.get(old as usize)?;
        let moved = Load {
            start,
            end,
            time,
            ..old
        };
        if self.add(moved, index) {
            self.counts.moves += 1;
        }
        Some(())
    }

    fn add(&mut self, load: Load, index: u64) -> bool {
        let at = self.loads.len();
        let Some(at) = u32::try_from(at).ok().filter(|_| at < MAX_LOADS) else {
            self.counts.beyond_limit += 1;
            return false;
        };
        self.loads.push(load);
        self.by_index.insert(index, at);
        self.current.assign(load.start, load.end, at);
        true
    }

    fn debug_info(&mut self, mut fields: Fields<'_>) -> Option<()> {
        let start = fields.u64()?;
        let count = fields.u64()?;
        let mut added = Vec::new();
        let mut file: Option<(&[u8], NameId)> = None;
        for _ in 0..count {
            let (address, line, _column) = (fields.u64()?, fields.u32()?, fields.u32()?);
            let name = fields.text()?;
            let id = match file {
                // `ff 00` says so; V8 repeats the name.
                Some((last, id)) if name == b"\xff" || name == last => Some(id),
                _ => self.names.add(name),
            };
            let Some(id) = id.filter(|_| self.lines.len() + added.len() < MAX_LINES) else {
                self.counts.beyond_limit += 1;
                return Some(());
            };
            file = Some((name, id)).filter(|_| name != b"\xff").or(file);
            let offset = address.checked_sub(start)?;
            added.push(Line {
                offset: u32::try_from(offset).ok()?,
                line,
                file: id,
            });
        }
        // Some releases of V8 write freed memory as a name; a zero in it shifts all that follows.
        if fields.0.len() >= 8 {
            return None;
        }
        added.sort_by_key(|line| line.offset);
        without_elf_header(&mut added);
        let first = u32::try_from(self.lines.len()).ok()?;
        self.lines.append(&mut added);
        let end = u32::try_from(self.lines.len()).ok()?;
        // Lines are announced right before their code; these have none.
        if self.announced.len() >= MAX_ANNOUNCED {
            self.announced.clear();
        }
        self.announced
            .insert(start, LineRange { start: first, end });
        Some(())
    }

    /// What the address was called at `time` (the clock of the file, normally CLOCK_MONOTONIC in
    /// nanoseconds), or by the last load when no time is given.
    pub fn lookup(&self, address: u64, time: Option<u64>) -> Lookup {
        let at_time = |load: &&Load| time.is_none_or(|time| load.time <= time);
        let covers = |load: &&Load| (load.start..load.end).contains(&address);
        let latest = self
            .current
            .find(address)
            .and_then(|stretch| self.loads.get(stretch.value as usize));
        let Some(latest) = latest else {
            return Lookup::unnamed(NameReason::AnonymousMemory);
        };
        // Reused memory is rare enough for a scan, newest first.
        let then = Some(latest)
            .filter(at_time)
            .or_else(|| self.loads.iter().rev().find(|l| covers(l) && at_time(l)));
        match then {
            Some(load) => Lookup::Named {
                function: demangle::name_of(self.names.get(load.name)),
                function_start: load.start,
                source: self.line(load, address),
                inlined: Vec::new(),
            },
            None => Lookup::unnamed(NameReason::NotMappedThen),
        }
    }

    fn line(&self, load: &Load, address: u64) -> Option<SourceLine> {
        let lines = self
            .lines
            .get(load.lines.start as usize..load.lines.end as usize)?;
        let offset = address.checked_sub(load.start)?;
        let after = lines.partition_point(|line| u64::from(line.offset) <= offset);
        let line = lines.get(after.checked_sub(1)?)?;
        let file = String::from_utf8_lossy(self.names.get(line.file));
        Some(SourceLine {
            file: Arc::from(file.as_ref()),
            line: (line.line > 0).then_some(line.line),
        })
    }

    /// What became of the records.
    pub fn counts(&self) -> JitDumpCounts {
        self.counts
    }

    /// Loads and moves kept.
    pub fn len(&self) -> usize {
        self.loads.len()
    }

    /// Nothing was loaded.
    pub fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }
}

/// V8 counts addresses of lines from the start of the ELF file that `perf inject` will write, whose
/// header has 64 bytes (`kElfHeaderSize` in `src/diagnostics/perf-jit.cc`); its first line is that of
/// the function's first byte.
fn without_elf_header(lines: &mut [Line]) {
    const ELF_HEADER_BYTES: u32 = 64;
    if lines.first().map(|line| line.offset) == Some(ELF_HEADER_BYTES) {
        for line in lines {
            line.offset -= ELF_HEADER_BYTES;
        }
    }
}

/// Checks the file header; how many bytes of it follow the known ones.
fn file_header(bytes: &[u8]) -> Result<u64, JitDumpError> {
    let mut fields = Fields(bytes);
    match fields.u32() {
        Some(MAGIC) => {}
        Some(other) if other.swap_bytes() == MAGIC => return Err(JitDumpError::BigEndian),
        _ => return Err(JitDumpError::NotJitDump),
    }
    let version = fields.u32().unwrap_or_default();
    if version != 1 {
        return Err(JitDumpError::Version(version));
    }
    let total = fields.u32().unwrap_or_default();
    u64::from(total)
        .checked_sub(FILE_HEADER_BYTES as u64)
        .ok_or(JitDumpError::RecordSize(total))
}

/// Little-endian fields, taken from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }

    /// The bytes before the next NUL. A name cut by the record's end is none.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest.get(1..)?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [MAGIC, 1, 40, 62, 0, 4242] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 16]);
        bytes
    }

    fn record(id: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len() + 16).unwrap().to_le_bytes());
        bytes.extend_from_slice(&time.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn load(time: u64, start: u64, size: u64, index: u64, name: &str) -> Vec<u8> {
        let mut body = words(&[0, start, start, size, index]);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend(std::iter::repeat_n(0x90, usize::try_from(size).unwrap()));
        record(0, time, &body)
    }

    fn moved(time: u64, old: u64, new: u64, size: u64, index: u64) -> Vec<u8> {
        record(1, time, &words(&[0, new, old, new, size, index]))
    }

    fn shown(dump: &JitDump, address: u64, time: Option<u64>) -> String {
        dump.lookup(address, time).label("?", address)
    }

    #[test]
    fn an_address_answers_for_the_time_it_is_asked_about() {
        let mut dump = JitDump::new();
        dump.push(&header()).unwrap();
        dump.push(&load(10, 0x1000, 64, 1, "first")).unwrap();
        dump.push(&load(20, 0x1000, 32, 2, "second")).unwrap();
        dump.push(&moved(30, 0x1000, 0x2000, 32, 2)).unwrap();
        assert_eq!(shown(&dump, 0x1000, Some(15)), "first");
        assert_eq!(shown(&dump, 0x1000, Some(25)), "second");
        assert_eq!(shown(&dump, 0x1030, Some(25)), "first");
        assert_eq!(shown(&dump, 0x2010, None), "second");
        let before = dump.lookup(0x1000, Some(5)).reason();
        assert_eq!(before, Some(NameReason::NotMappedThen));
        let elsewhere = dump.lookup(0x3000, None).reason();
        assert_eq!(elsewhere, Some(NameReason::AnonymousMemory));
    }

    #[test]
    fn lines_belong_to_the_code_that_is_loaded_next() {
        let mut body = words(&[0x1000, 2]);
        body.extend(words(&[0x1000]));
        body.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(b"a.js\0");
        body.extend(words(&[0x1010]));
        body.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(b"\xff\0");
        let mut dump = JitDump::new();
        dump.push(&header()).unwrap();
        dump.push(&record(2, 1, &body)).unwrap();
        dump.push(&load(2, 0x1000, 64, 1, "f")).unwrap();
        dump.push(&moved(3, 0x1000, 0x5000, 64, 1)).unwrap();
        for (address, expected) in [(0x100f, 7), (0x1010, 9), (0x503f, 9)] {
            let Lookup::Named { source, .. } = dump.lookup(address, None) else {
                panic!("{address:#x} has no name");
            };
            let source = source.unwrap();
            assert_eq!((&*source.file, source.line), ("a.js", Some(expected)));
        }
    }

    fn lines_of(address: u64, lines: &[(u64, u8)]) -> Vec<u8> {
        let mut body = words(&[address, lines.len() as u64]);
        for &(at, line) in lines {
            body.extend(words(&[at]));
            body.extend_from_slice(&[line, 0, 0, 0, 0, 0, 0, 0]);
            body.extend_from_slice(b"a.js\0");
        }
        body
    }

    #[test]
    fn lines_that_count_from_an_elf_header_are_moved_back() {
        let body = lines_of(0x1000, &[(0x1040, 7), (0x1050, 9)]);
        let mut dump = JitDump::new();
        dump.push(&header()).unwrap();
        dump.push(&record(2, 1, &body)).unwrap();
        dump.push(&load(2, 0x1000, 64, 1, "f")).unwrap();
        for (address, expected) in [(0x1000, 7), (0x100f, 7), (0x1010, 9)] {
            let Lookup::Named { source, .. } = dump.lookup(address, None) else {
                panic!("{address:#x} has no name");
            };
            assert_eq!(source.unwrap().line, Some(expected), "{address:#x}");
        }
    }

    #[test]
    fn lines_whose_names_are_freed_memory_are_left_out_and_the_function_stays() {
        let mut body = lines_of(0x1000, &[(0x1000, 7)]);
        body.extend_from_slice(b"a rest that no entry claims\0");
        let mut dump = JitDump::new();
        dump.push(&header()).unwrap();
        dump.push(&record(2, 1, &body)).unwrap();
        dump.push(&load(2, 0x1000, 64, 1, "f")).unwrap();
        assert_eq!(dump.counts().damaged_records, 1);
        assert!(
            matches!(
                dump.lookup(0x1000, None),
                Lookup::Named { source: None, .. }
            ),
            "no line"
        );
    }

    #[test]
    fn a_file_that_grows_is_read_on_wherever_it_was_cut() {
        let mut file = header();
        file.extend(load(1, 0x1000, 20, 1, "one"));
        file.extend(record(4, 2, &[0; 24]));
        file.extend(load(3, 0x2000, 20, 2, "two"));
        for cut in 0..=file.len() {
            let mut dump = JitDump::new();
            dump.push(&file[..cut]).unwrap();
            dump.push(&file[cut..]).unwrap();
            assert_eq!(
                (dump.counts().loads, dump.counts().other_records),
                (2, 1),
                "{cut}"
            );
            assert_eq!(shown(&dump, 0x2013, None), "two");
        }
    }

    #[test]
    fn files_that_cannot_be_read_say_so_and_keep_saying_so() {
        let mut big = header();
        big[..4].reverse();
        let mut version = header();
        version[4] = 9;
        let mut small = header();
        small.extend_from_slice(&[0; 16]);
        for (file, error) in [
            (vec![b'x'; 64], JitDumpError::NotJitDump),
            (big, JitDumpError::BigEndian),
            (version, JitDumpError::Version(9)),
            (small, JitDumpError::RecordSize(0)),
        ] {
            let mut dump = JitDump::new();
            assert_eq!(dump.push(&file), Err(error));
            assert_eq!(dump.push(b"more"), Err(error));
        }
    }

    #[test]
    fn records_that_contradict_themselves_are_counted_and_passed_over() {
        let mut dump = JitDump::new();
        dump.push(&header()).unwrap();
        dump.push(&record(0, 1, &words(&[0, 0, u64::MAX, 5, 1])))
            .unwrap();
        dump.push(&record(0, 1, &words(&[0]))).unwrap();
        dump.push(&moved(1, 0, 0x10, 5, 77)).unwrap();
        dump.push(&record(2, 1, &words(&[0, u64::MAX]))).unwrap();
        dump.push(&load(2, 0x1000, 8, 1, "good")).unwrap();
        assert_eq!(dump.counts().damaged_records, 4);
        assert_eq!(shown(&dump, 0x1000, None), "good");
    }
}
