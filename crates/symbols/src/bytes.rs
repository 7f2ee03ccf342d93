//! The bytes of a file, shared between the tables that point into them.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::sys;

/// The bytes of one file: a `Vec<u8>`, a memory map, or anything else that lends a slice.
///
/// Cloning is cheap and shares the bytes. The tables of this crate hold offsets into them, so
/// they live as long as the longest-lived table.
///
/// A map of a file that its owner shortens raises `SIGBUS` on the next read beyond the new end; for files of others there is
/// [`SharedBytes::copy_of`].
#[derive(Clone)]
pub struct SharedBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl SharedBytes {
    /// Shares `bytes`.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
    }

    /// A copy of a file in memory, of which only what is looked at becomes resident. Files over `limit` bytes are refused.
    ///
    /// # Errors
    /// Those of the system, and `larger than ... MiB`.
    pub fn copy_of(file: &mut File, limit: u64) -> io::Result<Self> {
        sys::map_copy(file, limit).map(Self::new)
    }

    /// The bytes of `range`, or `None` when it does not lie inside.
    pub(crate) fn slice(&self, range: &Range<usize>) -> Option<&[u8]> {
        self.get(range.clone())
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl From<Arc<dyn AsRef<[u8]> + Send + Sync>> for SharedBytes {
    fn from(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len())
    }
}
