//! The ledger: nothing is lost without a word.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use throughline_units::Samples;

use crate::escape;

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

/// One line: `14850 taken = 14841 kept + 9 lost (thread_gone 9); flagged: stack_truncated 2`.
///
/// Reasons may come from a file, so they are escaped. A ledger that does not balance says so.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.lost_total().0;
        write!(f, "{} taken = {} kept + {lost} lost", self.taken, self.kept)?;
        if lost > 0 {
            f.write_str(" (")?;
            list(f, &self.lost)?;
            f.write_str(")")?;
        }
        if !self.flagged.is_empty() {
            f.write_str("; flagged: ")?;
            list(f, &self.flagged)?;
        }
        if !self.balances() {
            f.write_str("; THE LEDGER DOES NOT ADD UP")?;
        }
        Ok(())
    }
}

/// `reason 3, other 1`.
fn list(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<String, u64>) -> fmt::Result {
    for (i, (key, count)) in counts.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{} {count}", escape(key))?;
    }
    Ok(())
}

fn add(counts: &mut BTreeMap<String, u64>, key: &str, count: u64) {
    if count > 0 {
        let sum = counts.entry(key.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_as_a_sum_and_says_when_it_is_none() {
        let mut ledger = Ledger {
            taken: 12,
            kept: 9,
            ..Ledger::default()
        };
        ledger.lose("ring_full", 1);
        ledger.lose("thread_gone", 2);
        ledger.lose("never", 0);
        assert!(ledger.balances());
        assert_eq!(
            ledger.to_string(),
            "12 taken = 9 kept + 3 lost (ring_full 1, thread_gone 2)"
        );
        ledger.flag("stack_\x1btruncated", 4);
        ledger.taken = 13;
        assert_eq!(
            ledger.to_string(),
            "13 taken = 9 kept + 3 lost (ring_full 1, thread_gone 2); \
             flagged: stack_\\x1btruncated 4; THE LEDGER DOES NOT ADD UP"
        );
    }

    #[test]
    fn a_ledger_from_a_hostile_file_does_not_overflow() {
        let mut ledger = Ledger {
            taken: u64::MAX,
            kept: u64::MAX,
            ..Ledger::default()
        };
        ledger.lose("a", u64::MAX);
        ledger.lose("b", u64::MAX);
        ledger.merge(&ledger.clone());
        assert!(!ledger.balances());
    }
}
