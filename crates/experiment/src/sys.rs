//! The system calls that the standard library does not offer: process CPU clocks, CPU affinity, the
//! parent-death signal, timers with nanosecond resolution.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(crate) use libc::{SIGKILL, SIGQUIT, SIGTERM};

/// `f_type` of tmpfs, from `statfs(2)`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// `f_type` of ramfs, from `statfs(2)`.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Sends `signal` to the process `pid`. An error means it was not sent, for instance because the
/// process is gone.
pub(crate) fn send_signal(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = positive_pid(pid)?;
    // SAFETY: kill takes two integers; `pid` is positive, so it names one process and no group.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

fn positive_pid(pid: u32) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// CPU time that all threads of process `pid` have used, at nanosecond resolution
/// (`clock_getcpuclockid(3)`; `/proc/PID/stat` counts in ticks of 10 ms).
pub(crate) fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = positive_pid(pid)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for the clock id, and is read only when the call succeeded.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    read_clock(clock)
}

/// CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> io::Result<Duration> {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is large enough for one timespec.
    check(unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) })?;
    // SAFETY: clock_gettime succeeded, so it has written the whole struct.
    let time = unsafe { time.assume_init() };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Ok(Duration::new(seconds, nanos))
}

/// The CPUs that the calling thread may run on, ascending.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: `set` is as large as the size given, and 0 names the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) })?;
    // SAFETY: all-zero is a valid cpu_set_t, and the kernel has filled it in.
    let set = unsafe { set.assume_init() };
    let limit = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: CPU_ISSET only reads bits of `set`, and `cpu` stays below CPU_SETSIZE.
    Ok((0..limit)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Lets the calling thread run on `cpu` alone.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: all-zero is the empty CPU set.
    let mut set = unsafe { MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies inside `set`.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is as large as the size given, and 0 names the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// Makes the kernel send `signal` to the child of `command` when the thread that spawns it ends,
/// however it ends (`prctl(2)`, PR_SET_PDEATHSIG).
pub(crate) fn signal_on_parent_death(command: &mut Command, signal: libc::c_int) {
    let parent = std::process::id();
    let arm = move || {
        // SAFETY: prctl with PR_SET_PDEATHSIG reads one integer argument.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
        // The parent may have died before the line above took effect.
        // SAFETY: getppid takes nothing and cannot fail.
        let now = unsafe { libc::getppid() };
        if u32::try_from(now) == Ok(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls and builds errors from
    // integers; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(arm) };
}

/// Whether the file system that holds `path` lives in memory, so that a synchronous write to it
/// waits for nothing.
pub(crate) fn is_in_memory(path: &Path) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` ends in NUL and `stat` is large enough for one statfs.
    check(unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) })?;
    // SAFETY: statfs succeeded, so it has written the whole struct.
    let kind = unsafe { stat.assume_init() }.f_type;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// A one-shot timer that becomes readable when it expires (`timerfd_create(2)`). Unlike the timeout
/// of `epoll_wait`, it is not rounded to milliseconds.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: timerfd_create takes two integers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the descriptor was just made and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Lets the timer expire once, `delay` from now; a delay of zero becomes one nanosecond, because
    /// zero would disarm it. Arming also clears an earlier expiry.
    pub(crate) fn arm(&self, delay: Duration) -> io::Result<()> {
        let delay = delay.max(Duration::from_nanos(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(delay.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: libc::c_long::from(delay.subsec_nanos()),
            },
        };
        // SAFETY: the descriptor is a timerfd, `spec` is valid, and the old value is not asked for.
        check(unsafe {
            libc::timerfd_settime(self.raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        })
        .map(drop)
    }
}
