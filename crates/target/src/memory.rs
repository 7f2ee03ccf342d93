//! Another process's memory as a callback: the only way in for every reader of this crate.

use thiserror::Error;

/// Why bytes of the target could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The address space no longer exists: the process has ended or has run `execve`.
    #[error(
        "the process has ended, has started another program, or has no memory of its own (a kernel thread, a zombie)"
    )]
    Gone,
    /// The kernel refuses access (ptrace access check; see ptrace(2)).
    #[error("no permission to read the process's memory")]
    Permission,
    /// Nothing readable is mapped at this address.
    #[error("no readable memory at {address:#x}")]
    Unmapped {
        /// The first address asked for that could not be read.
        address: u64,
    },
    /// More bytes were asked for than the caller's own bound allows.
    #[error("{asked} bytes asked for at {address:#x}, {limit} allowed")]
    TooLong {
        /// Start of the read.
        address: u64,
        /// Length asked for, in bytes.
        asked: u64,
        /// The bound, in bytes.
        limit: u64,
    },
    /// Any other failure of the system call.
    #[error("reading memory at {address:#x} failed: {reason}")]
    Io {
        /// Start of the read.
        address: u64,
        /// The system's text for the failure.
        reason: String,
    },
}

impl MemoryError {
    /// True when no later read of the same target can succeed either.
    pub fn is_final(&self) -> bool {
        matches!(self, MemoryError::Gone | MemoryError::Permission)
    }
}

/// Bytes that [`Memory::read_vec`] asks for at a time, so that a hostile length costs no memory
/// until as many bytes have really been read.
const GROWTH_STEP: usize = 64 * 1024;

/// Readable memory. Little-endian: the only targets are x86-64.
pub trait Memory {
    /// Fills `into` with the bytes at `address`, or fails; a failed read leaves `into` unspecified.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError>;

    /// One byte.
    fn read_u8(&self, address: u64) -> Result<u8, MemoryError> {
        let mut bytes = [0; 1];
        self.read(address, &mut bytes)?;
        Ok(bytes[0])
    }

    /// Two bytes, little-endian.
    fn read_u16(&self, address: u64) -> Result<u16, MemoryError> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Four bytes, little-endian.
    fn read_u32(&self, address: u64) -> Result<u32, MemoryError> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Eight bytes, little-endian.
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// `len` bytes, refused with [`MemoryError::TooLong`] when over `limit`.
    fn read_vec(&self, address: u64, len: u64, limit: u64) -> Result<Vec<u8>, MemoryError> {
        let wanted = match usize::try_from(len) {
            Ok(wanted) if len <= limit => wanted,
            _ => {
                return Err(MemoryError::TooLong {
                    address,
                    asked: len,
                    limit,
                });
            }
        };
        let mut bytes = Vec::new();
        while bytes.len() < wanted {
            let done = bytes.len();
            let step = GROWTH_STEP.min(wanted - done);
            let at = address
                .checked_add(done as u64)
                .ok_or(MemoryError::Unmapped { address: u64::MAX })?;
            bytes.resize(done + step, 0);
            self.read(at, &mut bytes[done..])?;
        }
        Ok(bytes)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        (**self).read(address, into)
    }
}

/// Fields of a structure that was copied out of the target as one block of bytes.
///
/// An offset outside the block reads as 0: blocks have fixed sizes and offsets come from our own
/// tables, so that case is a mistake of a table, and the tests of the tables would see it.
pub(crate) struct Block<'a>(pub &'a [u8]);

impl Block<'_> {
    fn bytes<const N: usize>(&self, offset: u64) -> [u8; N] {
        let start = offset as usize;
        let field = self.0.get(start..start.saturating_add(N));
        debug_assert!(
            field.is_some(),
            "offset {offset} outside a block of {}",
            self.0.len()
        );
        field
            .and_then(|field| field.try_into().ok())
            .unwrap_or([0; N])
    }

    pub fn u8(&self, offset: u64) -> u8 {
        self.bytes::<1>(offset)[0]
    }

    pub fn u16(&self, offset: u64) -> u16 {
        u16::from_le_bytes(self.bytes(offset))
    }

    pub fn u32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.bytes(offset))
    }

    pub fn u64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.bytes(offset))
    }
}
