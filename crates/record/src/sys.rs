//! The system calls that have no safe wrapper in a library: perf events, clocks, resource limits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use throughline_units::Nanos;

/// `struct perf_event_attr` up to its first published size (PERF_ATTR_SIZE_VER0, include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// `_IOW('$', 8, __u32)` and `_IO('$', 0)`.
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;

/// What a sampling clock runs on.
#[derive(Clone, Copy, Debug)]
pub enum ClockOn {
    /// A thread and the threads and processes that it starts from now on.
    Thread(u32),
    /// A core.
    Core(u32),
}

/// Opens a CPU clock that runs a BPF program every `period`.
///
/// # Errors
/// The error of perf_event_open(2) or of its ioctls.
pub fn open_clock(on: ClockOn, period: Nanos, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (pid, cpu, inherit) = match on {
        ClockOn::Thread(tid) => (tid.cast_signed(), -1, FLAG_INHERIT),
        ClockOn::Core(core) => (-1, core.cast_signed(), 0),
    };
    let attr = PerfEventAttr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<PerfEventAttr>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK,
        sample_period: period.0,
        flags: FLAG_DISABLED | inherit,
        ..PerfEventAttr::default()
    };
    // SAFETY: `attr` is a live struct of the size that it states; the other arguments are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            pid,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above returned a new descriptor that nothing else owns.
    let clock = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    ioctl(&clock, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
    ioctl(&clock, PERF_EVENT_IOC_ENABLE, 0)?;
    Ok(clock)
}

fn ioctl(fd: &OwnedFd, request: libc::c_ulong, argument: i32) -> io::Result<()> {
    // SAFETY: both requests take an integer by value; the descriptor is open.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request, libc::c_long::from(argument)) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Runs a BPF program of type BPF_PROG_TYPE_SYSCALL once; it reads `context` and may write to it.
///
/// # Errors
/// The error of bpf(2).
pub fn run_program(program: BorrowedFd<'_>, context: &mut [u8]) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ..Default::default()
    };
    // SAFETY: the kernel reads and writes `ctx_size_in` bytes at `ctx_in` during the call (bpf_prog_test_run_syscall in
    // net/bpf/test_run.c), which `context`, borrowed mutably, has; nothing else is pointed to.
    let done = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if done < 0 {
        return Err(io::Error::from_raw_os_error(-done));
    }
    Ok(())
}

/// CLOCK_MONOTONIC, as bpf_ktime_get_ns() reads it.
#[must_use]
pub fn monotonic() -> Nanos {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// CPU time that this process has used.
#[must_use]
pub fn own_cpu_time() -> Nanos {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that a process has used by the scheduler's account, its ended threads included; `None` when it is gone.
#[must_use]
pub fn process_cpu_time(pid: u32) -> Option<Nanos> {
    // CPUCLOCK_SCHED of include/linux/posix-timers.h: the clock's number is the inverted pid and the sort of clock.
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    try_read_clock((!pid.cast_signed() << 3) | CPUCLOCK_SCHED)
}

fn read_clock(clock: libc::clockid_t) -> Nanos {
    // The clocks that are named here exist on every Linux.
    try_read_clock(clock).unwrap_or(Nanos(0))
}

fn try_read_clock(clock: libc::clockid_t) -> Option<Nanos> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live struct that the call fills; an unknown clock is an error.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (done == 0).then(|| Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

/// Raises the soft limit of open files to the hard one, which needs no privilege, and returns it.
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live struct that the calls read and fill.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0
            && limit.rlim_cur < limit.rlim_max
        {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    limit.rlim_cur
}
