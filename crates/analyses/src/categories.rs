//! Cost by category: what sort of code the samples were in.
//!
//! A category is *exact* when no sample outside of it may belong to it, else a *lower bound*; `at_most_samples` is then what it can be at
//! most. Samples are sorted by the recorder; what it looks at is said there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use throughline_profile::{Category, Sample};

use crate::per_request::{PerRequest, us};
use crate::shown::percent;

/// How sure the share of a category is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It is what it says.
    Exact,
    /// It may be more.
    Lower,
}

/// A category with its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CategoryRow {
    /// Stable name.
    pub name: &'static str,
    /// Samples in it.
    pub samples: u64,
    /// Their share of all samples looked at.
    pub share: f64,
    /// Their CPU time per request in us.
    pub us_per_request: Option<f64>,
    /// Why there is none.
    pub us_per_request_reason: Option<String>,
    /// Whether more samples may belong to it.
    pub bound: Bound,
    /// The most it can be, in samples.
    pub at_most_samples: u64,
    /// Parts of the kernel; empty for all others.
    pub subsystems: Vec<SubsystemRow>,
}

/// A part of the kernel with its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubsystemRow {
    /// Stable name.
    pub name: &'static str,
    /// Samples in it.
    pub samples: u64,
    /// Their share of all samples looked at.
    pub share: f64,
}

/// Samples without a category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uncategorised {
    /// How many.
    pub samples: u64,
    /// Why; left out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// Counts on-CPU samples by category.
#[derive(Debug, Default)]
pub(crate) struct CategoryCounts {
    samples: u64,
    unknown: u64,
    by_category: BTreeMap<Category, u64>,
    /// Samples of others that may belong to a name, by name: parts of the kernel count once.
    may_be: BTreeMap<&'static str, u64>,
}

impl CategoryCounts {
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        let Some(known) = sample.category else {
            self.unknown += 1;
            return;
        };
        *self.by_category.entry(known.category).or_default() += 1;
        let mut names: Vec<&str> = Category::ALL
            .into_iter()
            .filter(|&other| known.may_be.contains(other))
            .map(Category::name)
            .filter(|&name| name != known.category.name())
            .collect();
        names.dedup();
        for name in names {
            *self.may_be.entry(name).or_default() += 1;
        }
    }

    /// Categories with any sample, the largest first.
    pub(crate) fn rows(&self, per_request: &PerRequest) -> Vec<CategoryRow> {
        let mut by_name: BTreeMap<&'static str, (u64, Vec<SubsystemRow>)> = BTreeMap::new();
        for (&category, &samples) in &self.by_category {
            let (sum, parts) = by_name.entry(category.name()).or_default();
            *sum += samples;
            if let Some(name) = category.subsystem() {
                parts.push(SubsystemRow {
                    name,
                    samples,
                    share: crate::share(samples, self.samples),
                });
            }
        }
        for &name in self.may_be.keys() {
            by_name.entry(name).or_default();
        }
        let mut rows: Vec<CategoryRow> = by_name
            .into_iter()
            .map(|(name, (samples, mut subsystems))| {
                subsystems.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.name.cmp(b.name)));
                let more = self.may_be.get(name).copied().unwrap_or(0) + self.unknown;
                let (us_per_request, us_per_request_reason) = per_request.cost(samples);
                CategoryRow {
                    name,
                    samples,
                    share: crate::share(samples, self.samples),
                    us_per_request,
                    us_per_request_reason,
                    bound: if more == 0 {
                        Bound::Exact
                    } else {
                        Bound::Lower
                    },
                    at_most_samples: samples + more,
                    subsystems,
                }
            })
            .collect();
        rows.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.name.cmp(b.name)));
        rows
    }

    pub(crate) fn uncategorised(&self) -> Uncategorised {
        Uncategorised {
            samples: self.unknown,
            reason: (self.unknown > 0).then_some(Category::UNKNOWN_REASON),
        }
    }
}

/// The categories as a table; nothing without rows.
pub(crate) fn table(
    out: &mut String,
    rows: &[CategoryRow],
    uncategorised: &Uncategorised,
    whole: u64,
) {
    if let Some(reason) = uncategorised.reason {
        let _ = writeln!(
            out,
            "\nWithout a category: {} of {whole} samples ({reason})",
            uncategorised.samples
        );
    }
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\nCategories; shares of {whole} samples\n  {:>7} {:>9}  {:>12}  category",
        "share", "samples", "per request"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "  {:>7} {:>9}  {:>12}  {}{}",
            percent(row.share),
            row.samples,
            us(row.us_per_request),
            row.name,
            note(row, whole)
        );
    }
}

/// What the name alone does not say: the parts of the kernel, and how much more it may be.
fn note(row: &CategoryRow, whole: u64) -> String {
    let mut note = String::new();
    for (i, part) in row.subsystems.iter().enumerate() {
        let lead = if i == 0 { ": " } else { ", " };
        let _ = write!(note, "{lead}{} {}", part.name, percent(part.share));
    }
    if row.bound == Bound::Lower {
        let most = crate::share(row.at_most_samples, whole);
        let _ = write!(note, "  (lower bound; at most {})", percent(most));
    }
    note
}

#[cfg(test)]
mod tests {
    use throughline_profile::{CategorySet, Classified, ThreadId};
    use throughline_units::Nanos;

    use super::*;

    fn counts(samples: &[(Option<Category>, CategorySet, u64)]) -> CategoryCounts {
        let mut counts = CategoryCounts::default();
        for &(category, may_be, count) in samples {
            let mut sample = Sample::on_cpu(Nanos(0), ThreadId(0), None);
            sample.category = category.map(|category| Classified { category, may_be });
            for _ in 0..count {
                counts.add(&sample);
            }
        }
        counts
    }

    #[test]
    fn a_category_is_exact_unless_samples_elsewhere_may_belong_to_it() {
        let runtime = CategorySet::EMPTY.with(Category::Gc).with(Category::Ffi);
        let counts = counts(&[
            (Some(Category::Interpreter), CategorySet::EMPTY, 50),
            (Some(Category::Gc), CategorySet::EMPTY, 10),
            (Some(Category::LuaRuntime), runtime, 20),
            (Some(Category::KernelNetwork), CategorySet::EMPTY, 15),
            (Some(Category::KernelMemory), CategorySet::EMPTY, 5),
        ]);
        let rows = counts.rows(&PerRequest::none("not asked"));
        let row = |name| rows.iter().find(|row| row.name == name).expect(name);
        assert_eq!(
            (row("interpreter").samples, row("interpreter").bound),
            (50, Bound::Exact)
        );
        assert_eq!(
            (row("gc").bound, row("gc").at_most_samples),
            (Bound::Lower, 30)
        );
        // No sample is surely FFI, and up to twenty may be.
        assert_eq!((row("ffi").samples, row("ffi").at_most_samples), (0, 20));
        assert_eq!(
            (row("kernel").samples, row("kernel").subsystems.len()),
            (20, 2)
        );
        let sum: f64 = rows.iter().map(|row| row.share).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert_eq!(counts.uncategorised().samples, 0);
    }

    #[test]
    fn samples_without_a_category_make_all_others_lower_bounds() {
        let counts = counts(&[
            (Some(Category::Jit), CategorySet::EMPTY, 3),
            (None, CategorySet::EMPTY, 1),
        ]);
        let rows = counts.rows(&PerRequest::none("not asked"));
        assert_eq!((rows[0].share, rows[0].bound), (0.75, Bound::Lower));
        assert_eq!(
            counts.uncategorised().reason,
            Some(Category::UNKNOWN_REASON)
        );
    }
}
