//! The two system interfaces that need `unsafe`: opening a path that cannot leave a root directory, and
//! mapping a file.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens the regular file at `path` below `root` for reading. Symbolic links, absolute ones and `..` included, are
/// resolved as if `root` were `/` (and so is an absolute `path`), so a container cannot point its debug files at the host's.
/// Nothing but a regular file is ever opened: opening a FIFO can block, and opening a device can do anything (a watchdog's
/// restarts the machine). Needs Linux 5.6 (`openat2`) and /proc.
pub(crate) fn open_in_root(root: &File, path: &Path) -> io::Result<File> {
    let place = locate_in_root(root, path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// A descriptor (`O_PATH`) that names the file without opening it.
fn locate_in_root(root: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // `open_how` is marked as extensible, so it is zeroed and filled.
    // SAFETY: `open_how` is a plain struct of integers; all zeros is a valid value of it.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    how.flags = u64::from(flags.cast_unsigned());
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `path` is a NUL-terminated string and `how` an `open_how` of the stated size; both
    // outlive the call, which does not keep them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Maps a copy of a file's first `limit` bytes.
///
/// A map of the file itself would raise `SIGBUS` when somebody shortens the file. The copy is a file in memory that nobody else
/// can reach, and only what is looked at of it is mapped.
pub(crate) fn map_copy(file: &mut File, limit: u64) -> io::Result<memmap2::Mmap> {
    if file.metadata()?.len() > limit {
        return Err(io::Error::other(format!("larger than {} MiB", limit >> 20)));
    }
    // SAFETY: the name is a NUL-terminated string that outlives the call.
    let fd = unsafe { libc::memfd_create(c"throughline-copy".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let mut copy = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    io::copy(&mut io::Read::take(file, limit), &mut copy)?;
    // SAFETY: the memory file is ours alone: its descriptor is closed when this function ends and was never handed out, so
    // nobody can shorten or change it.
    unsafe { memmap2::Mmap::map(&copy) }
}
