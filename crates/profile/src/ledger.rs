//! The ledger: nothing is lost without a word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_units::Samples;

/// Samples taken, kept, and lost by kind; and what is imperfect about the kept ones.
///
/// `taken == kept + sum(lost)` holds for every ledger that [`Ledger::balances`] accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Events at which a sample was due.
    pub taken: u64,
    /// Samples in the profile.
    pub kept: u64,
    /// Samples that are not in the profile, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Kept samples that carry a flag, by flag; one sample may count in several.
    pub flagged: BTreeMap<String, u64>,
}

impl Ledger {
    /// Whether every sample taken is accounted for.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.kept.checked_add(self.lost_total().0) == Some(self.taken)
    }

    /// All losses together.
    #[must_use]
    pub fn lost_total(&self) -> Samples {
        self.lost.values().copied().map(Samples).sum()
    }

    /// Adds a loss; zero leaves no row.
    pub fn lose(&mut self, reason: &str, count: u64) {
        add(&mut self.lost, reason, count);
    }

    /// Adds to a flag's count; zero leaves no row.
    pub fn flag(&mut self, flag: &str, count: u64) {
        add(&mut self.flagged, flag, count);
    }

    /// Adds another ledger to this one.
    pub fn merge(&mut self, other: &Self) {
        self.taken = self.taken.saturating_add(other.taken);
        self.kept = self.kept.saturating_add(other.kept);
        for (reason, &count) in &other.lost {
            self.lose(reason, count);
        }
        for (flag, &count) in &other.flagged {
            self.flag(flag, count);
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, key: &str, count: u64) {
    if count > 0 {
        let sum = counts.entry(key.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
}
