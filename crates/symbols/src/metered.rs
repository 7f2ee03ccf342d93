//! A reader of DWARF and unwinding tables that counts, and refuses to go on when a question has cost too much.
//!
//! DWARF refers to itself: ten megabytes in which a million entries all use one list of a million
//! ranges make a reader collect 10^12 of them. What a reader collects is proportional to what
//! it reads, so a bound on reading bounds time and memory alike.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{EndianSlice, Error, LittleEndian, ReaderOffsetId};

/// Counts bytes read. Shared by all readers of a module.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    left: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Lets the next question read `bytes`.
    pub fn allow(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Bytes read so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// `false` when the allowance is used up. One thread reads at a time, so plain
    /// loads and stores suffice.
    fn charge(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.total.store(self.total() + bytes, Ordering::Relaxed);
        match self.left.load(Ordering::Relaxed).checked_sub(bytes) {
            Some(left) => {
                self.left.store(left, Ordering::Relaxed);
                true
            }
            None => {
                self.left.store(0, Ordering::Relaxed);
                false
            }
        }
    }
}

/// An [`EndianSlice`] that charges a [`Meter`].
#[derive(Clone, Copy)]
pub(crate) struct Metered<'a> {
    bytes: EndianSlice<'a, LittleEndian>,
    meter: &'a Meter,
}

impl<'a> Metered<'a> {
    pub fn new(bytes: &'a [u8], meter: &'a Meter) -> Self {
        Self {
            bytes: EndianSlice::new(bytes, LittleEndian),
            meter,
        }
    }

    /// The error of a reader at its end: gimli has none for "enough".
    fn charge(&self, bytes: usize) -> gimli::Result<()> {
        if self.meter.charge(bytes) {
            Ok(())
        } else {
            Err(Error::UnexpectedEof(gimli::Reader::offset_id(&self.bytes)))
        }
    }
}

impl fmt::Debug for Metered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metered({} bytes)", self.bytes.slice().len())
    }
}

impl gimli::Reader for Metered<'_> {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.bytes.slice().len()
    }

    fn empty(&mut self) {
        gimli::Reader::empty(&mut self.bytes);
    }

    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        gimli::Reader::truncate(&mut self.bytes, len)
    }

    fn offset_from(&self, base: &Self) -> usize {
        gimli::Reader::offset_from(&self.bytes, &base.bytes)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        gimli::Reader::offset_id(&self.bytes)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        gimli::Reader::lookup_offset_id(&self.bytes, id)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let at = gimli::Reader::find(&self.bytes, byte)?;
        self.charge(at)?;
        Ok(at)
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.charge(1)?;
        gimli::Reader::skip(&mut self.bytes, len)
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.charge(1)?;
        Ok(Self {
            bytes: gimli::Reader::split(&mut self.bytes, len)?,
            meter: self.meter,
        })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.charge(self.len())?;
        gimli::Reader::to_slice(&self.bytes)
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        self.charge(self.len())?;
        gimli::Reader::to_string(&self.bytes)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        self.charge(self.len())?;
        gimli::Reader::to_string_lossy(&self.bytes)
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        self.charge(buffer.len())?;
        gimli::Reader::read_slice(&mut self.bytes, buffer)
    }
}
