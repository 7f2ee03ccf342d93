//! The answer to "may a flame graph explain this?".

use serde::Serialize;

/// Which graph may explain the worker's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The worker is bound by its core: look at where samples on the CPU land.
    OnCpu,
    /// The worker is mostly off its core: look at what it waits for.
    OffCpu,
    /// Between: both graphs.
    Both,
    /// Neither, before something else is looked at.
    NotExplainable,
}

impl Verdict {
    /// Stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on_cpu",
            Self::OffCpu => "off_cpu",
            Self::Both => "both",
            Self::NotExplainable => "not_explainable",
        }
    }
}
