//! What of a case file could not be used, counted.

use std::collections::BTreeMap;
use std::fmt;

/// Rows that were left out or mended while reading, by table and reason.
///
/// Empty for every file that this tool wrote and nobody changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    counts: BTreeMap<(&'static str, String), u64>,
}

impl Damage {
    /// Whether everything could be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Number of findings.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Findings as `(table, reason, count)`.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.counts
            .iter()
            .map(|((table, reason), &count)| (*table, reason.as_str(), count))
    }

    /// Counts one finding.
    pub(crate) fn add(&mut self, table: &'static str, reason: impl Into<String>) {
        *self.counts.entry((table, reason.into())).or_default() += 1;
    }
}

/// One line: `stack: parent is not an earlier stack (3), ...`.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (table, reason, count)) in self.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{table}: {reason} ({count})")?;
        }
        Ok(())
    }
}
