//! The vocabulary in which analyses answer: claims with their support, conditions with reading and
//! threshold, verdicts, and boundaries (what an answer does not prove).
//!
//! The caller must give each claim its denominator and each absent reading its reason; the types leave no
//! other way. Pure: no I/O, no clock, no rendering beyond the stable names in JSON.
//!
//! What this crate deliberately does not do: compute. How a reading came about is the analyses' part.
//!
//! ```
//! use throughline_evidence::{Condition, Holds};
//! let unknown = Condition::unknown("error_rate_stable", "errors_per_s", "no status endpoint given");
//! assert_eq!(unknown.holds, Holds::Unknown("no status endpoint given".into()));
//! ```

mod claim;
mod condition;
mod verdict;

pub use claim::{Boundary, Claim, Denominator, Support};
pub use condition::{Condition, Holds};
pub use verdict::Verdict;
