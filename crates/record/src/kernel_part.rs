//! Which part of the kernel a sample was in, by the system call or the exception through which it was entered.

use throughline_profile::Category;

/// System calls that tell the part by themselves.
const CALLS: [(&str, Category); 60] = [
    ("epoll_wait", Category::KernelPolling),
    ("epoll_pwait", Category::KernelPolling),
    ("epoll_pwait2", Category::KernelPolling),
    ("epoll_ctl", Category::KernelPolling),
    ("poll", Category::KernelPolling),
    ("ppoll", Category::KernelPolling),
    ("select", Category::KernelPolling),
    ("pselect6", Category::KernelPolling),
    ("futex", Category::KernelScheduler),
    ("nanosleep", Category::KernelScheduler),
    ("clock_nanosleep", Category::KernelScheduler),
    ("sched_yield", Category::KernelScheduler),
    ("sched_setaffinity", Category::KernelScheduler),
    ("mmap", Category::KernelMemory),
    ("munmap", Category::KernelMemory),
    ("mremap", Category::KernelMemory),
    ("mprotect", Category::KernelMemory),
    ("madvise", Category::KernelMemory),
    ("brk", Category::KernelMemory),
    ("process_vm_readv", Category::KernelMemory),
    ("socket", Category::KernelNetwork),
    ("socketpair", Category::KernelNetwork),
    ("connect", Category::KernelNetwork),
    ("accept", Category::KernelNetwork),
    ("accept4", Category::KernelNetwork),
    ("bind", Category::KernelNetwork),
    ("listen", Category::KernelNetwork),
    ("shutdown", Category::KernelNetwork),
    ("sendto", Category::KernelNetwork),
    ("sendmsg", Category::KernelNetwork),
    ("sendmmsg", Category::KernelNetwork),
    ("recvfrom", Category::KernelNetwork),
    ("recvmsg", Category::KernelNetwork),
    ("recvmmsg", Category::KernelNetwork),
    ("setsockopt", Category::KernelNetwork),
    ("getsockopt", Category::KernelNetwork),
    ("getsockname", Category::KernelNetwork),
    ("getpeername", Category::KernelNetwork),
    ("open", Category::KernelFilesystem),
    ("openat", Category::KernelFilesystem),
    ("openat2", Category::KernelFilesystem),
    ("stat", Category::KernelFilesystem),
    ("lstat", Category::KernelFilesystem),
    ("fstat", Category::KernelFilesystem),
    ("newstat", Category::KernelFilesystem),
    ("newlstat", Category::KernelFilesystem),
    ("newfstat", Category::KernelFilesystem),
    ("newfstatat", Category::KernelFilesystem),
    ("statx", Category::KernelFilesystem),
    ("access", Category::KernelFilesystem),
    ("faccessat", Category::KernelFilesystem),
    ("unlink", Category::KernelFilesystem),
    ("unlinkat", Category::KernelFilesystem),
    ("rename", Category::KernelFilesystem),
    ("mkdir", Category::KernelFilesystem),
    ("getdents64", Category::KernelFilesystem),
    ("fsync", Category::KernelFilesystem),
    ("fdatasync", Category::KernelFilesystem),
    ("ftruncate", Category::KernelFilesystem),
    ("lseek", Category::KernelFilesystem),
];

/// System calls on any descriptor: what the descriptor is shows further in.
const ANY_DESCRIPTOR: [&str; 14] = [
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "close",
    "sendfile",
    "sendfile64",
    "ioctl",
    "fcntl",
    "splice",
];

const INTERRUPT: [&str; 4] = [
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
];
const NETWORK: [&str; 9] = [
    "sock_",
    "__sock_",
    "tcp_",
    "udp_",
    "inet_",
    "inet6_",
    "unix_stream",
    "unix_dgram",
    "skb_",
];
const FILES: [&str; 8] = [
    "vfs_",
    "ext4_",
    "xfs_",
    "btrfs_",
    "ovl_",
    "shmem_",
    "generic_file",
    "filemap_",
];

/// The part, from the names of the kernel's functions on the stack, innermost first, and the name of the user's function that entered it: the
/// C library's functions are called as the system calls that they make.
#[must_use]
pub fn kernel_part<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    user: Option<&'a str>,
) -> Category {
    let any = |prefixes: &[&str]| {
        names
            .clone()
            .any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    if any(&["uprobe_", "__uprobe_", "asm_exc_int3"]) {
        return Category::KernelTracing;
    }
    // The interrupted work has nothing to do with it, so an interrupt goes before a system call.
    if any(&INTERRUPT) {
        return Category::KernelInterrupt;
    }
    if any(&["asm_exc_page_fault", "exc_page_fault"]) {
        return Category::KernelMemory;
    }
    match names.clone().find_map(system_call) {
        Some(call) if ANY_DESCRIPTOR.contains(&call) => {
            if any(&NETWORK) {
                Category::KernelNetwork
            } else if any(&["pipe_", "anon_pipe_", "eventfd_", "tty_"]) {
                Category::KernelOther
            } else {
                Category::KernelFilesystem
            }
        }
        Some(call) => CALLS
            .iter()
            .find(|(name, _)| *name == call)
            .map_or(Category::KernelOther, |&(_, part)| part),
        // The function of the call is missing where it jumped on instead of calling.
        None if any(&NETWORK) => Category::KernelNetwork,
        None if any(&["ep_", "do_epoll"]) => Category::KernelPolling,
        None if any(&FILES) => Category::KernelFilesystem,
        None if any(&["schedule", "__schedule", "futex_"]) => Category::KernelScheduler,
        None => user.map_or(Category::KernelOther, by_wrapper),
    }
}

/// The part that a function of the C library calls, where its name alone tells.
fn by_wrapper(function: &str) -> Category {
    let name = function
        .trim_start_matches('_')
        .trim_end_matches("_syscall")
        .trim_end_matches("_nocancel");
    let call = match name {
        "recv" => "recvfrom",
        "send" => "sendto",
        "open64" => "openat",
        other => other,
    };
    CALLS
        .iter()
        .find(|(known, _)| *known == call)
        .map_or(Category::KernelOther, |&(_, part)| part)
}

/// `__x64_sys_openat` is `openat`.
fn system_call(name: &str) -> Option<&str> {
    let call = ["__x64_sys_", "__ia32_sys_", "__do_sys_", "__se_sys_"]
        .into_iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    // Parts of a function that the compiler split off carry a suffix.
    call.split('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(names: &[&'static str]) -> Category {
        kernel_part(names.iter().copied(), None)
    }

    #[test]
    fn the_system_call_decides_and_the_descriptor_where_it_does_not() {
        let tail = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
        let with = |names: &[&'static str]| part(&[names, &tail].concat());
        assert_eq!(
            with(&[
                "tcp_poll",
                "ep_send_events",
                "do_epoll_wait",
                "__x64_sys_epoll_wait"
            ]),
            Category::KernelPolling
        );
        assert_eq!(
            with(&[
                "tcp_sendmsg",
                "sock_write_iter",
                "vfs_writev",
                "__x64_sys_writev"
            ]),
            Category::KernelNetwork
        );
        assert_eq!(
            with(&[
                "ext4_file_write_iter",
                "vfs_write",
                "ksys_write",
                "__x64_sys_write"
            ]),
            Category::KernelFilesystem
        );
        assert_eq!(
            with(&["pipe_write", "vfs_write", "__x64_sys_write"]),
            Category::KernelOther
        );
        assert_eq!(
            with(&["do_futex", "__x64_sys_futex"]),
            Category::KernelScheduler
        );
        assert_eq!(with(&["wait4", "__x64_sys_wait4"]), Category::KernelOther);
    }

    #[test]
    fn faults_are_memory_and_interrupts_are_nobodys_call() {
        assert_eq!(
            part(&[
                "clear_page_erms",
                "handle_mm_fault",
                "exc_page_fault",
                "asm_exc_page_fault"
            ]),
            Category::KernelMemory
        );
        assert_eq!(
            part(&[
                "__do_softirq",
                "sysvec_apic_timer_interrupt",
                "tcp_sendmsg",
                "__x64_sys_writev"
            ]),
            Category::KernelInterrupt
        );
        assert_eq!(part(&["[kernel]+0x10"]), Category::KernelOther);
        assert_eq!(
            part(&[
                "uprobe_dispatcher",
                "handler_chain",
                "uprobe_notify_resume",
                "asm_exc_int3"
            ]),
            Category::KernelTracing
        );
    }

    #[test]
    fn before_the_call_is_dispatched_the_wrapper_tells_it() {
        let entry = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
        let by = |user| kernel_part(entry.into_iter(), Some(user));
        assert_eq!(by("epoll_wait"), Category::KernelPolling);
        assert_eq!(by("recv"), Category::KernelNetwork);
        assert_eq!(by("getsockopt_syscall"), Category::KernelNetwork);
        assert_eq!(by("writev"), Category::KernelOther);
        assert_eq!(by("main"), Category::KernelOther);
    }
}
