//! Perf maps: `/tmp/perf-PID.map`, the text in which JITs (Node with `--perf-basic-prof`, the JVM's
//! perf-map-agent, .NET, Erlang, PyPy) tell profilers about their code.
//!
//! Each line is `START SIZE NAME`: two hexadecimal numbers without a prefix, then the name up to
//! the end of the line, spaces included
//! (<https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jit-interface.txt>).
//! The file grows while the program runs and carries no times, so an address answers with
//! the entry written last: read it close to the samples that it is to name.

use crate::address_map::AddressMap;
use crate::demangle;
use crate::lookup::{Lookup, NameReason};
use crate::names::{NameId, Names};

/// Names of all entries together. Node's maps have about 80 bytes a line.
const MAX_NAME_BYTES: usize = 256 << 20;
/// Stretches of code, about 50 bytes each. Large Node services have a few hundred thousand.
const MAX_ENTRIES: usize = 2 << 20;
/// A line without an end beyond this is damage.
const MAX_LINE_BYTES: usize = crate::Name::MAX_BYTES + 64;

/// A perf map, read as it grows.
#[derive(Debug)]
pub struct PerfMap {
    entries: AddressMap<NameId>,
    names: Names,
    partial_line: Vec<u8>,
    skipping: bool,
    counts: PerfMapCounts,
}

/// What became of the lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerfMapCounts {
    /// Bytes read so far: where the next read of the file starts.
    pub bytes: u64,
    /// Lines that named code.
    pub entries: u64,
    /// Lines that are no entry: no numbers, no name, an empty or wrapping range, too long.
    pub damaged_lines: u64,
    /// Entries refused because the table was full.
    pub beyond_limit: u64,
}

impl Default for PerfMap {
    fn default() -> Self {
        Self::new()
    }
}

impl PerfMap {
    /// An empty map.
    pub fn new() -> Self {
        Self {
            entries: AddressMap::default(),
            names: Names::with_limit(MAX_NAME_BYTES),
            partial_line: Vec::new(),
            skipping: false,
            counts: PerfMapCounts::default(),
        }
    }

    /// Reads the next bytes of the file. A line may be split between calls; the last one counts once its
    /// end has been seen, because a name cut in the middle would mislead.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.counts.bytes += bytes.len() as u64;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.partial_line.is_empty() {
                self.line(line);
            } else {
                let mut whole = std::mem::take(&mut self.partial_line);
                whole.extend_from_slice(line);
                self.line(&whole);
            }
        }
        if !self.skipping {
            self.partial_line.extend_from_slice(bytes);
            if self.partial_line.len() > MAX_LINE_BYTES {
                self.partial_line = Vec::new();
                self.skipping = true;
                self.counts.damaged_lines += 1;
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        let Some((start, end, name)) = entry(line) else {
            self.counts.damaged_lines += 1;
            return;
        };
        let room = self.entries.len() < MAX_ENTRIES;
        let Some(name) = room.then(|| self.names.add(name)).flatten() else {
            self.counts.beyond_limit += 1;
            return;
        };
        self.entries.assign(start, end, name);
        self.counts.entries += 1;
    }

    /// What the address is called by the entries read so far.
    pub fn lookup(&self, address: u64) -> Lookup {
        match self.entries.find(address) {
            Some(stretch) => Lookup::Named {
                function: demangle::name_of(self.names.get(stretch.value)),
                function_start: stretch.function_start,
                source: None,
                inlined: Vec::new(),
            },
            None => Lookup::unnamed(NameReason::AnonymousMemory),
        }
    }

    /// What became of the lines.
    pub fn counts(&self) -> PerfMapCounts {
        self.counts
    }

    /// Stretches of named code.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No code is named.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `START SIZE NAME` as (start, end, name).
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let (start, rest) = hex_field(line)?;
    let (size, name) = hex_field(rest)?;
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then_some((start, end, name))
}

/// The hexadecimal number before the first space, and what follows the space.
fn hex_field(line: &[u8]) -> Option<(u64, &[u8])> {
    let end = memchr::memchr(b' ', line)?;
    let (digits, rest) = line.split_at(end);
    // Some writers add the prefix.
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    Some((hex(digits)?, rest.get(1..)?))
}

/// A hexadecimal number of 1 to 16 digits, without sign or prefix.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        Some(value << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(map: &PerfMap, address: u64) -> String {
        map.lookup(address).label("?", address)
    }

    #[test]
    fn names_keep_their_spaces_and_later_entries_win() {
        let mut map = PerfMap::new();
        map.push(b"7f00 100 LazyCompile:~f /app/main.js:1:2 [x y]\n7f80 20 Builtin:g\n");
        assert_eq!(shown(&map, 0x7f00), "LazyCompile:~f /app/main.js:1:2 [x y]");
        assert_eq!(shown(&map, 0x7f80), "Builtin:g");
        assert_eq!(shown(&map, 0x7f9f), "Builtin:g");
        assert_eq!(shown(&map, 0x7fa0), "LazyCompile:~f /app/main.js:1:2 [x y]");
        assert_eq!(
            map.lookup(0x8000).reason(),
            Some(NameReason::AnonymousMemory)
        );
    }

    #[test]
    fn a_map_that_grows_is_read_on_wherever_it_was_cut() {
        let text = b"10 8 first\n20 8 second name\n30 8 third\n";
        for cut in 0..=text.len() {
            let mut map = PerfMap::new();
            map.push(&text[..cut]);
            map.push(&text[cut..]);
            assert_eq!(map.counts().entries, 3, "cut at {cut}");
            assert_eq!(map.counts().bytes, text.len() as u64);
            assert_eq!(shown(&map, 0x27), "second name");
        }
    }

    #[test]
    fn a_line_whose_end_was_not_written_yet_does_not_count() {
        let mut map = PerfMap::new();
        map.push(b"10 8 half");
        assert!(map.is_empty());
        map.push(b"way\n");
        assert_eq!(shown(&map, 0x10), "halfway");
    }

    #[test]
    fn hostile_lines_are_counted_and_do_no_harm() {
        let mut map = PerfMap::new();
        map.push(b"zz 1 a\n10\n10 \n10 5\n10 5 \n10 0 empty\nffffffffffffffff 2 wraps\n11111111111111111 1 long\n-1 1 neg\n\n");
        assert_eq!(map.counts().damaged_lines, 9);
        assert!(map.is_empty());
        let endless = vec![b'a'; 3 * MAX_LINE_BYTES];
        map.push(b"10 5 ");
        map.push(&endless);
        map.push(b"\n20 5 good\r\n");
        assert_eq!(map.counts().damaged_lines, 10);
        assert_eq!(map.counts().entries, 1);
        assert_eq!(shown(&map, 0x20), "good");
    }
}
