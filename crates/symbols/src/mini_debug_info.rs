//! `.gnu_debugdata`: an xz-compressed ELF file that holds a symbol table of the functions that
//! `.dynsym` lacks. Fedora and its relatives ship it in every binary.

use std::io::Read;

use crate::bytes::SharedBytes;

/// The dictionary that a decoder may allocate. `xz -9` needs 64 MiB.
const MAX_DICTIONARY_KIB: u32 = 80 * 1024;

/// Why the embedded file could not be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnpackError {
    NotXz,
    TooLarge,
}

/// Real ones hold a few megabytes: names, and nothing else.
const MAX_BYTES: usize = 64 << 20;

/// Unpacks at most `max_bytes`.
pub(crate) fn unpack(xz: &[u8], max_bytes: usize) -> Result<SharedBytes, UnpackError> {
    let max_bytes = max_bytes.min(MAX_BYTES);
    let mut unpacked = Vec::new();
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    lzma_rust2::XzReader::new_mem_limit(xz, false, MAX_DICTIONARY_KIB)
        .take(limit.saturating_add(1))
        .read_to_end(&mut unpacked)
        .map_err(|_| UnpackError::NotXz)?;
    if unpacked.len() > max_bytes {
        return Err(UnpackError::TooLarge);
    }
    Ok(unpacked.into())
}
