//! The one system call without a safe wrapper: switching a perf event on and off.

use std::io;
use std::os::fd::OwnedFd;

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};

/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`, `_IO('$', 0)` and `_IO('$', 1)` (include/uapi/linux/perf_event.h).
const ENABLE: Opcode = opcode::none(b'$', 0);
const DISABLE: Opcode = opcode::none(b'$', 1);

/// Lets a perf event count, or stops it; whoever else has it open keeps it.
///
/// # Errors
/// The error of ioctl(2).
pub fn switch(event: &OwnedFd, on: bool) -> io::Result<()> {
    // SAFETY: both requests take no argument and touch no memory of this process; of another sort of file they are an error.
    let done = unsafe {
        if on {
            ioctl(event, NoArg::<ENABLE>::new())
        } else {
            ioctl(event, NoArg::<DISABLE>::new())
        }
    };
    Ok(done?)
}
