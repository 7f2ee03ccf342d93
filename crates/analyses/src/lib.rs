//! One module for each question: from what was recorded or observed to evidence.
//!
//! The caller reads the data; nothing here does I/O or reads a clock, so each answer can be had again from the same
//! data. What an analysis cannot show is part of its answer. Nothing here renders beyond lines of text and JSON values:
//! where they go is the caller's part.
//!
//! ```
//! use throughline_analyses::rank::{NotEnoughData, RankBy, RankPlan, rank};
//! use throughline_profile::{CaptureKind, Profile};
//! let plan = RankPlan { kind: CaptureKind::OnCpu, by: RankBy::SelfWeight, limit: None, pid: None };
//! let nothing = rank(&Profile::default(), plan);
//! assert_eq!(nothing, Err(NotEnoughData::NotRecorded(CaptureKind::OnCpu)));
//! ```

pub mod calls;
pub mod check;
pub mod jit;
pub mod path;
pub mod rank;

mod categories;
mod per_request;
mod shown;

pub use categories::{Bound, CategoryRow, SubsystemRow, Uncategorised};
pub use per_request::Requests;

/// A part of a whole; 0 of nothing is 0, never NaN.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
