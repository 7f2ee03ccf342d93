//! A live process, read through procfs.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use crate::memory::{Memory, MemoryError};

/// Upper bound of the text of one `/proc/PID/maps`: 65,530 mappings (the kernel's default
/// `vm.max_map_count`) with paths of 4 KiB each would not reach it.
const MAPS_TEXT_LIMIT: usize = 512 << 20;

/// The address space that a process had when it was opened.
///
/// Reads go through `/proc/PID/mem` and not through `process_vm_readv(2)`, because an open file
/// stays bound to this one address space: after an exit (even when the pid is used again) and
/// after an `execve`, reads answer [`MemoryError::Gone`] and never bytes of another program.
/// Needs ptrace access to the target (same user without dumpable restrictions, or CAP_SYS_PTRACE).
#[derive(Debug)]
pub struct LiveProcess {
    pid: u32,
    memory: File,
    maps: File,
}

impl LiveProcess {
    /// Opens the memory of `pid` (as seen in this procfs's pid namespace).
    pub fn open(pid: u32) -> Result<LiveProcess, MemoryError> {
        let open = |name: &str| {
            File::open(format!("/proc/{pid}/{name}")).map_err(|error| match error.kind() {
                ErrorKind::NotFound => MemoryError::Gone,
                ErrorKind::PermissionDenied => MemoryError::Permission,
                _ => from_io(0, &error),
            })
        };
        Ok(LiveProcess {
            pid,
            memory: open("mem")?,
            maps: open("maps")?,
        })
    }

    /// The pid it was opened by.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The text of `/proc/PID/maps` now, for [`parse_maps`](crate::parse_maps).
    pub fn maps(&self) -> Result<Vec<u8>, MemoryError> {
        let mut text = Vec::new();
        let mut page = vec![0; 64 * 1024];
        loop {
            match self.maps.read_at(&mut page, text.len() as u64) {
                // An address space always has mappings: none means that it is gone.
                Ok(0) if text.is_empty() => return Err(MemoryError::Gone),
                Ok(0) => return Ok(text),
                Ok(got) => text.extend_from_slice(&page[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(from_io(0, &error)),
            }
            if text.len() > MAPS_TEXT_LIMIT {
                return Ok(text);
            }
        }
    }
}

impl Memory for LiveProcess {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        // Offsets of a file are signed; no user address on x86-64 has the top bit set.
        if address
            .checked_add(into.len() as u64)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(MemoryError::Unmapped { address });
        }
        let mut done = 0;
        while done < into.len() {
            let at = address + done as u64;
            match self.memory.read_at(&mut into[done..], at) {
                Ok(0) => return Err(MemoryError::Gone),
                Ok(got) => done += got,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(from_io(at, &error)),
            }
        }
        Ok(())
    }
}

/// Error numbers of Linux (asm-generic/errno-base.h) that name a case of [`MemoryError`].
fn from_io(address: u64, error: &std::io::Error) -> MemoryError {
    const EPERM: i32 = 1;
    const ESRCH: i32 = 3;
    const EIO: i32 = 5;
    const EACCES: i32 = 13;
    const EFAULT: i32 = 14;
    match error.raw_os_error() {
        Some(ESRCH) => MemoryError::Gone,
        Some(EPERM | EACCES) => MemoryError::Permission,
        Some(EIO | EFAULT) => MemoryError::Unmapped { address },
        _ => MemoryError::Io {
            address,
            reason: error.to_string(),
        },
    }
}
