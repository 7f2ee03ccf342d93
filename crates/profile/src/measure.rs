//! Measures: what a sample's weight counts, so that weights of different kinds are never summed.

use serde::{Deserialize, Serialize};

use crate::{OffCpu, SampleKind, SwitchReason};

/// What the weight of a sample counts.
///
/// Every sample belongs to exactly one measure. Sums and shares are made within one measure only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// On a core; one sample weighs 1.
    OnCpu,
    /// Waiting in the kernel for a result (lock, disk, reply); weight in ns of `duration`, which
    /// includes the time in the run queue after the wakeup.
    Blocked,
    /// Waiting for work (epoll, accept, an idle pool thread); weight in ns of `duration`.
    Idle,
    /// Runnable while another thread had the core; weight in ns of `duration`.
    Preempted,
}

impl Measure {
    /// All measures, in the order of their codes in the case file.
    pub const ALL: [Self; 4] = [Self::OnCpu, Self::Blocked, Self::Idle, Self::Preempted];

    /// The measure of a sample, and its weight in it.
    #[must_use]
    pub fn of(kind: SampleKind) -> (Self, u64) {
        match kind {
            SampleKind::OnCpu => (Self::OnCpu, 1),
            SampleKind::OffCpu(off) => (Self::of_off_cpu(off), off.duration.0),
        }
    }

    fn of_off_cpu(off: OffCpu) -> Self {
        match (off.reason, off.idle) {
            (SwitchReason::Preempted, _) => Self::Preempted,
            (SwitchReason::Voluntary, true) => Self::Idle,
            (SwitchReason::Voluntary, false) => Self::Blocked,
        }
    }
}
