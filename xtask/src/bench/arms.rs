//! What is compared: nothing, our recorder, and perf.

use std::ffi::OsString;
use std::path::Path;

/// One way to record a worker, or not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Nothing: the same as the slices around it, so that its ratio is the floor of the method.
    Off,
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

/// In the order of the report.
pub const ARMS: [Arm; 7] = [
    Arm::Off,
    Arm::Throughline {
        rate_hz: 99,
        off_cpu: true,
    },
    Arm::Throughline {
        rate_hz: 499,
        off_cpu: false,
    },
    Arm::Throughline {
        rate_hz: 499,
        off_cpu: true,
    },
    Arm::PerfDwarf { rate_hz: 99 },
    Arm::PerfDwarf { rate_hz: 499 },
    Arm::PerfFramePointers { rate_hz: 499 },
];

/// A recorder that forgets to stop ends by itself after this many seconds.
const GUARD_SECONDS: &str = "120";

impl Arm {
    /// A short name for tables.
    pub fn label(self) -> String {
        match self {
            Self::Off => "off (A/A)".to_owned(),
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
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        match self {
            Self::Off => return None,
            Self::Throughline { rate_hz, off_cpu } => {
                let rate = rate_hz.to_string();
                let guard = format!("{GUARD_SECONDS}s");
                add(&["record", "--pid", &pid, "--rate", &rate, "--for", &guard]);
                add(&["--beyond-safe", "--json", "--quiet"]);
                if !off_cpu {
                    add(&["--on-cpu"]);
                }
                add(&["--output"]);
                words.push(output.into());
                words.insert(0, binary.into());
            }
            Self::PerfDwarf { rate_hz } => {
                let rate = rate_hz.to_string();
                add(&["perf", "record", "--call-graph", "dwarf,8192"]);
                add(&["-F", &rate, "-p", &pid, "-o"]);
                words.push(output.into());
                words.extend(["--", "sleep", GUARD_SECONDS].map(OsString::from));
            }
            Self::PerfFramePointers { rate_hz } => {
                let rate = rate_hz.to_string();
                add(&["perf", "record", "-g", "-F", &rate, "-p", &pid, "-o"]);
                words.push(output.into());
                words.extend(["--", "sleep", GUARD_SECONDS].map(OsString::from));
            }
        }
        Some(words)
    }

    /// Whether it is perf.
    pub fn is_perf(self) -> bool {
        matches!(
            self,
            Self::PerfDwarf { .. } | Self::PerfFramePointers { .. }
        )
    }
}
