//! One thread's (or process's) counters: `stat`, `schedstat` and `status`, see proc_pid_stat(5) and
//! Documentation/scheduler/sched-stats.rst.

use crate::{
    absence::{Absence, Reading},
    cpu_set::CpuSet,
    files::{fields, lines, number},
};

/// The fields of `/proc/PID/stat` that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 2, without its parentheses, at most 15 bytes for a user thread.
    pub(crate) comm: Vec<u8>,
    /// Field 3: R, S, D, Z, ...
    pub(crate) state: char,
    /// Field 4.
    pub(crate) parent: u32,
    /// Field 14, in clock ticks.
    pub(crate) user_ticks: u64,
    /// Field 15, in clock ticks.
    pub(crate) system_ticks: u64,
    /// Field 20: threads in the process.
    pub(crate) threads: u32,
    /// Field 22, in clock ticks since boot: with the pid it names one process for ever.
    pub(crate) start_ticks: u64,
    /// Field 39: the core it runs on, or ran on last.
    pub(crate) core: u32,
}

impl Stat {
    /// Parses the file. The name ends at the last `)`: it may hold blanks, newlines and parentheses.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let open = bytes
            .iter()
            .position(|&byte| byte == b'(')
            .ok_or("stat without a name")?;
        let close = bytes
            .iter()
            .rposition(|&byte| byte == b')')
            .ok_or("stat without a name")?;
        let comm = bytes.get(open + 1..close).ok_or("stat without a name")?;
        let rest: Vec<&[u8]> = fields(bytes.get(close + 1..).unwrap_or_default()).collect();
        // Field N of the manual page is rest[N - 3].
        let at = |field: usize| {
            rest.get(field - 3)
                .and_then(|text| number(text))
                .ok_or("stat with a missing or odd field")
        };
        let small =
            |field: usize| u32::try_from(at(field)?).map_err(|_| "stat with a field out of range");
        Ok(Self {
            comm: comm.to_vec(),
            state: rest
                .first()
                .and_then(|text| text.first())
                .map_or('?', |&byte| char::from(byte)),
            parent: small(4)?,
            user_ticks: at(14)?,
            system_ticks: at(15)?,
            threads: small(20)?,
            start_ticks: at(22)?,
            core: small(39)?,
        })
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }
}

/// `/proc/PID/task/TID/schedstat`: nanoseconds on a core, nanoseconds runnable without one, and how
/// often it was given one. A wait is added when it ends; a running thread's time at the scheduler's tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedstat {
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
}

impl Schedstat {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut numbers = fields(bytes).map(number);
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(run_ns), Some(wait_ns)) => Ok(Self { run_ns, wait_ns }),
            _ => Err("schedstat without its two times"),
        }
    }
}

/// The lines of `/proc/PID/task/TID/status` that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) process: Reading<u32>,
    pub(crate) allowed: Reading<CpuSet>,
    pub(crate) voluntary: Reading<u64>,
    pub(crate) involuntary: Reading<u64>,
}

impl Status {
    /// Parses the file. The kernel escapes newlines in `Name:`, so a name cannot pose as a line.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let value = |key: &[u8]| {
            lines(bytes)
                .find_map(|line| line.strip_prefix(key))
                .map(<[u8]>::trim_ascii)
        };
        let counter = |key: &str| {
            value(key.as_bytes()).and_then(number).ok_or_else(|| {
                Absence::damaged(&format!("status, {key}"), "not there or not a number")
            })
        };
        let allowed = match value(b"Cpus_allowed_list:") {
            None => Err(Absence::damaged("status, Cpus_allowed_list:", "not there")),
            Some(list) => CpuSet::parse(list)
                .map_err(|problem| Absence::damaged("status, Cpus_allowed_list:", problem)),
        };
        Self {
            process: counter("Tgid:").and_then(|pid| {
                u32::try_from(pid).map_err(|_| Absence::damaged("status, Tgid:", "out of range"))
            }),
            allowed,
            voluntary: counter("voluntary_ctxt_switches:"),
            involuntary: counter("nonvoluntary_ctxt_switches:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Schedstat, Stat, Status};

    /// Built by field number from proc_pid_stat(5): field N holds 1000 + N, but for those named here.
    fn stat_line(comm: &[u8]) -> Vec<u8> {
        let mut line = b"77 (".to_vec();
        line.extend_from_slice(comm);
        line.extend_from_slice(b") R");
        for field in 4..=52 {
            line.extend_from_slice(format!(" {}", 1000 + field).as_bytes());
        }
        line.push(b'\n');
        line
    }

    #[test]
    fn fields_are_found_by_their_number_in_the_manual_page() {
        let stat = Stat::parse(&stat_line(b"nginx")).unwrap();
        assert_eq!(stat.comm, b"nginx");
        assert_eq!(stat.state, 'R');
        assert_eq!(
            (stat.parent, stat.user_ticks, stat.system_ticks),
            (1004, 1014, 1015)
        );
        assert_eq!(
            (stat.threads, stat.start_ticks, stat.core),
            (1020, 1022, 1039)
        );
    }

    #[test]
    fn a_name_with_parentheses_blanks_newlines_and_escapes_keeps_the_fields_in_place() {
        for comm in [
            &b"a) S 1 (b"[..],
            b"x\ny z",
            b"\x1b[2J)",
            b")))",
            b"",
            b"\xff\xfe",
        ] {
            let stat = Stat::parse(&stat_line(comm)).unwrap();
            assert_eq!(stat.comm, comm);
            assert_eq!(stat.core, 1039);
        }
    }

    #[test]
    fn a_truncated_stat_is_an_error_not_a_panic() {
        let whole = stat_line(b"a b");
        for length in 0..whole.len() {
            // A cut after field 39 still has all we read, whatever the last digit.
            let _ = Stat::parse(&whole[..length]);
        }
        assert!(Stat::parse(b"").is_err());
        assert!(Stat::parse(b")(").is_err());
        assert!(Stat::parse(b"1 (x) R 1 2 3").is_err());
        assert!(Stat::parse(b"1 (x) R -1 99999999999999999999999").is_err());
    }

    #[test]
    fn schedstat_needs_both_times() {
        assert_eq!(
            Schedstat::parse(b"10 20 3\n").unwrap(),
            Schedstat {
                run_ns: 10,
                wait_ns: 20
            }
        );
        assert!(Schedstat::parse(b"10\n").is_err());
        assert!(Schedstat::parse(b"").is_err());
        assert!(Schedstat::parse(b"-1 5 2").is_err());
    }

    #[test]
    fn a_status_line_that_is_missing_says_so_and_costs_only_itself() {
        let status = Status::parse(
            b"Name:\tx\nTgid:\t12\nCpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t7\n",
        );
        assert_eq!(status.process, Ok(12));
        assert_eq!(status.allowed.unwrap().to_string(), "0-1");
        assert_eq!(status.voluntary, Ok(7));
        assert!(
            status
                .involuntary
                .unwrap_err()
                .to_string()
                .contains("nonvoluntary")
        );
    }
}
