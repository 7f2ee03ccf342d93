//! The sampling clocks: one per thread, inherited by the threads and processes that it starts.
//!
//! A clock of a thread counts that thread's CPU time, so the number of samples is that time multiplied by the rate, whatever the
//! machine does, and cores that run no target are not disturbed. When there are more threads than file descriptors, one clock
//! per core takes over: that one samples by wall time, so the number of samples then scatters.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use throughline_units::Nanos;

use crate::process;
use crate::sys::{self, ClockOn};

/// Descriptors that are left for everything else.
const DESCRIPTORS_SPARED: u64 = 256;

/// Open clocks; they stop when this value is dropped.
pub struct Clocks {
    period: Nanos,
    open: Vec<OwnedFd>,
    threads: HashSet<u32>,
    descriptors_max: u64,
    per_core: bool,
}

impl Clocks {
    /// No clock runs yet.
    #[must_use]
    pub fn new(period: Nanos) -> Self {
        Self {
            period,
            open: Vec::new(),
            threads: HashSet::new(),
            descriptors_max: sys::raise_open_files().saturating_sub(DESCRIPTORS_SPARED),
            per_core: false,
        }
    }

    /// Whether the clocks run per core, by wall time.
    #[must_use]
    pub fn per_core(&self) -> bool {
        self.per_core
    }

    /// Starts clocks for every thread of a process that has none. Threads that start meanwhile inherit theirs, and the loop goes
    /// on until a round finds no new one.
    ///
    /// # Errors
    /// The error of perf_event_open(2); a thread that ended meanwhile is none.
    pub fn add_process(&mut self, pid: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        const ROUNDS_MAX: usize = 8;
        for _ in 0..ROUNDS_MAX {
            if self.per_core {
                return Ok(());
            }
            let new: Vec<u32> = process::threads(pid)
                .into_iter()
                .filter(|tid| !self.threads.contains(tid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                self.add_thread(tid, program)?;
            }
        }
        Ok(())
    }

    fn add_thread(&mut self, tid: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        if self.open.len() as u64 >= self.descriptors_max {
            return self.change_to_cores(program);
        }
        match sys::open_clock(ClockOn::Thread(tid), self.period, program) {
            Ok(clock) => {
                self.open.push(clock);
                self.threads.insert(tid);
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                ) =>
            {
                self.change_to_cores(program)
            }
            Err(error) => Err(error),
        }
    }

    fn change_to_cores(&mut self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.open.clear();
        self.threads.clear();
        self.per_core = true;
        for core in online_cores()? {
            self.open
                .push(sys::open_clock(ClockOn::Core(core), self.period, program)?);
        }
        Ok(())
    }

    /// Stops all clocks.
    pub fn stop(&mut self) {
        self.open.clear();
    }
}

/// Cores of /sys/devices/system/cpu/online, a list such as `0-3,8`.
fn online_cores() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    Ok(parse_core_list(&text))
}

fn parse_core_list(text: &str) -> Vec<u32> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_ranges_and_single_cores() {
        assert_eq!(parse_core_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_core_list("0"), [0]);
        assert_eq!(parse_core_list("nonsense"), [0_u32; 0]);
    }
}
