//! The bytes of a file, shared between the tables that point into them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes of one file: a `Vec<u8>`, a memory map, or anything else that lends a slice.
///
/// Cloning is cheap and shares the bytes. The tables of this crate hold offsets into them, so
/// they live as long as the longest-lived table.
///
/// A map of a file that its owner shortens raises `SIGBUS` on the next read beyond the new end;
/// the caller who maps decides whether it may trust the file's owner.
#[derive(Clone)]
pub struct SharedBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl SharedBytes {
    /// Shares `bytes`.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
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
