//! Memory that is copied in large pieces, so that a walk over millions of small objects costs a few
//! system calls.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::maps::Mapping;
use crate::memory::{Memory, MemoryError};

/// Bytes copied at a time. Objects of one VM lie close together, and a read of this size costs
/// little more than one of a page.
const PIECE: u64 = 128 * 1024;

/// Bytes that one copy holds at most; what lies past that is read from the target each time.
const LIMIT: u64 = 2 << 30;

/// The target's own writable memory, each piece copied when something in it is first asked for, and
/// the rest of its memory as it is.
///
/// Pieces are copied at different times: a copy is no snapshot, and the caller must check that
/// what it read belongs together.
pub struct CopiedMemory<'a> {
    live: &'a dyn Memory,
    /// Sorted, without overlaps.
    regions: Vec<(u64, u64)>,
    pieces: RefCell<Vec<Piece>>,
    by_start: RefCell<HashMap<u64, usize>>,
    last: Cell<usize>,
    copied: Cell<u64>,
}

/// Bytes from `start`, or none when they could not be copied as one.
struct Piece {
    start: u64,
    bytes: Option<Box<[u8]>>,
}

impl<'a> CopiedMemory<'a> {
    /// A copy with nothing in it yet.
    pub fn new(live: &'a dyn Memory, mappings: &[Mapping]) -> CopiedMemory<'a> {
        let own = |mapping: &&Mapping| {
            mapping.is_anonymous() && mapping.permissions.read && mapping.permissions.write
        };
        let mut regions: Vec<(u64, u64)> = Vec::new();
        let mut sorted: Vec<&Mapping> = mappings.iter().filter(own).collect();
        sorted.sort_by_key(|mapping| mapping.start);
        for mapping in sorted {
            if regions.last().is_none_or(|last| last.1 <= mapping.start) {
                regions.push((mapping.start, mapping.end));
            }
        }
        CopiedMemory {
            live,
            regions,
            pieces: RefCell::default(),
            by_start: RefCell::default(),
            last: Cell::new(usize::MAX),
            copied: Cell::new(0),
        }
    }

    /// Bytes copied so far.
    pub fn bytes_copied(&self) -> u64 {
        self.copied.get()
    }

    /// Index of the piece that holds `address`, copied now if it was not; `None` where nothing is
    /// copied.
    fn piece(&self, address: u64) -> Option<usize> {
        let region = self.regions.partition_point(|&(start, _)| start <= address);
        let &(start, end) = self.regions.get(region.checked_sub(1)?)?;
        if address >= end {
            return None;
        }
        let start = start.max(address & !(PIECE - 1));
        if let Some(&index) = self.by_start.borrow().get(&start) {
            return Some(index);
        }
        let len = end.min((address & !(PIECE - 1)).saturating_add(PIECE)) - start;
        if self.copied.get().saturating_add(len) > LIMIT {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?].into_boxed_slice();
        let bytes = self.live.read(start, &mut bytes).ok().map(|()| bytes);
        self.copied.set(self.copied.get() + len);
        let mut pieces = self.pieces.borrow_mut();
        pieces.push(Piece { start, bytes });
        self.by_start.borrow_mut().insert(start, pieces.len() - 1);
        Some(pieces.len() - 1)
    }

    /// Copies what one piece has of `into`; the number of bytes, or `None` when none has any.
    fn copy(&self, index: usize, address: u64, into: &mut [u8]) -> Option<usize> {
        let pieces = self.pieces.borrow();
        let piece = pieces.get(index)?;
        let offset = usize::try_from(address.checked_sub(piece.start)?).ok()?;
        let rest = piece.bytes.as_deref()?.get(offset..)?;
        let len = rest.len().min(into.len());
        into.get_mut(..len)?.copy_from_slice(rest.get(..len)?);
        (len > 0).then_some(len)
    }
}

impl Memory for CopiedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let mut done = 0;
        while done < into.len() {
            let unmapped = MemoryError::Unmapped { address };
            let at = address.checked_add(done as u64).ok_or(unmapped)?;
            let rest = into.get_mut(done..).unwrap_or_default();
            let mut copied = self.copy(self.last.get(), at, rest);
            if copied.is_none()
                && let Some(index) = self.piece(at)
            {
                self.last.set(index);
                copied = self.copy(index, at, rest);
            }
            let Some(copied) = copied else {
                return self.live.read(at, rest);
            };
            done += copied;
        }
        Ok(())
    }
}
