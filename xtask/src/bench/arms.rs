//! What is compared: nothing, a clock alone, our recorder, and perf.

use std::ffi::OsString;
use std::path::Path;

/// One way to record a worker, or not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// Nothing: the same as the windows it is compared with, so that its ratio is the floor of the method.
    Off,
    /// A clock of perf's that is switched like the others and never fires: what switching costs.
    Switching,
    /// `perf record` without stacks: what the interrupts alone cost, which every sampler pays.
    Interrupts {
        /// Samples per second.
        rate_hz: u32,
    },
    /// `throughline record`.
    Throughline {
        /// Samples per second.
        rate_hz: u32,
        /// Waiting threads too.
        off_cpu: bool,
    },
    /// `perf record --call-graph dwarf,8192`.
    PerfDwarf {
        /// Samples per second.
        rate_hz: u32,
    },
    /// `perf record -g`: frame pointers.
    PerfFramePointers {
        /// Samples per second.
        rate_hz: u32,
    },
}

/// In the order of the report. Off-CPU recording has no clock that could be switched: its cost is the time of its programs, which
/// the kernel counts (see `footprint`).
pub const ARMS: [Arm; 9] = [
    Arm::Off,
    Arm::Switching,
    Arm::Interrupts { rate_hz: 499 },
    on_cpu(99),
    on_cpu(499),
    Arm::PerfDwarf { rate_hz: 99 },
    Arm::PerfDwarf { rate_hz: 499 },
    Arm::PerfFramePointers { rate_hz: 99 },
    Arm::PerfFramePointers { rate_hz: 499 },
];

/// `throughline record --on-cpu`.
pub const fn on_cpu(rate_hz: u32) -> Arm {
    Arm::Throughline {
        rate_hz,
        off_cpu: false,
    }
}

/// A recorder that forgets to stop ends by itself after this many seconds.
const GUARD_SECONDS: &str = "600";

impl Arm {
    /// A short name for tables.
    pub fn label(self) -> String {
        match self {
            Self::Off => "off (A/A)".to_owned(),
            Self::Switching => "a clock that never fires".to_owned(),
            Self::Interrupts { rate_hz } => format!("perf without stacks {rate_hz} Hz"),
            Self::Throughline {
                rate_hz,
                off_cpu: false,
            } => format!("throughline {rate_hz} Hz, on-CPU"),
            Self::Throughline {
                rate_hz,
                off_cpu: true,
            } => format!("throughline {rate_hz} Hz, on- and off-CPU"),
            Self::PerfDwarf { rate_hz } => format!("perf dwarf,8192 {rate_hz} Hz"),
            Self::PerfFramePointers { rate_hz } => format!("perf -g {rate_hz} Hz"),
        }
    }

    /// The command that records `pid` into `output`, or none.
    pub fn command(self, binary: &Path, pid: u32, output: &Path) -> Option<Vec<OsString>> {
        let pid = pid.to_string();
        match self {
            Self::Off => None,
            Self::Throughline { rate_hz, off_cpu } => {
                let (rate, guard) = (rate_hz.to_string(), format!("{GUARD_SECONDS}s"));
                let mut words = vec![OsString::from(binary)];
                words.extend(
                    ["record", "--pid", &pid, "--rate", &rate, "--for", &guard].map(OsString::from),
                );
                words.extend(["--beyond-safe", "--json", "--quiet"].map(OsString::from));
                if !off_cpu {
                    words.push("--on-cpu".into());
                }
                words.push("--output".into());
                words.push(output.into());
                Some(words)
            }
            // Its period is hours.
            Self::Switching => Some(perf(&["-c", "36000000000000"], &pid, output)),
            Self::Interrupts { rate_hz } => Some(perf(&["-F", &rate_hz.to_string()], &pid, output)),
            Self::PerfDwarf { rate_hz } => Some(perf(
                &["--call-graph", "dwarf,8192", "-F", &rate_hz.to_string()],
                &pid,
                output,
            )),
            Self::PerfFramePointers { rate_hz } => {
                Some(perf(&["-g", "-F", &rate_hz.to_string()], &pid, output))
            }
        }
    }

    /// Whether it is perf.
    pub fn is_perf(self) -> bool {
        !matches!(self, Self::Off | Self::Throughline { .. })
    }
}

fn perf(how: &[&str], pid: &str, output: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["perf", "record", "-e", "cpu-clock"]
        .map(OsString::from)
        .into();
    words.extend(how.iter().map(OsString::from));
    words.extend(["-p", pid, "-o"].map(OsString::from));
    words.push(output.into());
    words.extend(["--", "sleep", GUARD_SECONDS].map(OsString::from));
    words
}
