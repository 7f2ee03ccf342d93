//! The one thing that needs `unsafe`: taking over a file descriptor that the parent process left open.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Owns a descriptor that was inherited under a number told by the parent; the standard three are never such.
///
/// Call it before anything else is opened, and once.
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    let open = std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    if number <= 2 || !open {
        return None;
    }
    // SAFETY: the descriptor is open. Nothing in this process owns it: it was open before `main` began, and the hidden verb
    // that calls this opens nothing first.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
