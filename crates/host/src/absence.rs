//! Why something could not be read.

use std::fmt;

/// A value, or the reason there is none.
pub type Reading<T> = Result<T, Absence>;

/// Why a reading is absent. Its `Display` form is what a report prints beside the `null`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// This kernel or machine does not offer it (a virtual machine without cpufreq, a kernel without PSI).
    NotOffered(String),
    /// The file is there and we may not read it.
    Denied(String),
    /// The process or thread ended before it could be read.
    Gone(String),
    /// The file was read and does not have the shape its documentation gives.
    Damaged {
        /// Which file.
        what: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The counter was smaller at the end than at the start.
    WentBackwards(String),
    /// Reading it would have cost more than this tool allows itself.
    TooCostly(String),
    /// Too little was counted to say anything.
    TooFew(String),
    /// Any other error from the system.
    Unreadable {
        /// Which file.
        what: String,
        /// The system's words.
        error: String,
    },
}

impl Absence {
    /// Classifies an I/O error met while reading `what`.
    ///
    /// A file under a pid's folder answers ESRCH (3) when the process ended after the open.
    pub(crate) fn from_io(what: &str, error: &std::io::Error) -> Self {
        const ESRCH: i32 = 3;
        if error.raw_os_error() == Some(ESRCH) {
            return Self::Gone(what.to_owned());
        }
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotOffered(what.to_owned()),
            std::io::ErrorKind::PermissionDenied => Self::Denied(what.to_owned()),
            _ => Self::Unreadable {
                what: what.to_owned(),
                error: error.to_string(),
            },
        }
    }

    pub(crate) fn damaged(what: &str, problem: &'static str) -> Self {
        Self::Damaged {
            what: what.to_owned(),
            problem,
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered(what) => write!(out, "{what} is not offered by this machine"),
            Self::Denied(what) => write!(out, "no permission to read {what}"),
            Self::Gone(what) => write!(out, "{what} ended before it could be read"),
            Self::Damaged { what, problem } => write!(out, "{what} is damaged: {problem}"),
            Self::WentBackwards(what) => {
                write!(out, "{what} was smaller at the end than at the start")
            }
            Self::TooCostly(what) => write!(out, "not read because of its cost: {what}"),
            Self::TooFew(what) => write!(out, "too little was counted: {what}"),
            Self::Unreadable { what, error } => write!(out, "{what} could not be read: {error}"),
        }
    }
}

/// The growth of a counter. Kernel counters wrap, reset with their device, and a few (iowait) are
/// documented to decrease; a difference below zero is a reason, not a number.
pub(crate) fn growth(what: &str, first: u64, last: u64) -> Reading<u64> {
    last.checked_sub(first)
        .ok_or_else(|| Absence::WentBackwards(what.to_owned()))
}
