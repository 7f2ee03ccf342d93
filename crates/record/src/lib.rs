//! Records live processes: the kernel's side (BPF) and what turns its records into a profile.
//!
//! [`record`] runs a whole recording according to a [`RecordPlan`]. The caller selects the processes, keeps the profile through a
//! [`Keeper`] (about once a second, so that a killed recorder has lost no more than that), and shows progress. The profile's
//! ledger accounts for every sample that the kernel took.
//!
//! This is the only crate that loads BPF and the only writer of live data. It never writes to a target, stops it, or loads code
//! into it; everything it has in the kernel goes away with the process. It does not analyse and does not store.
//!
//! ```no_run
//! use throughline_profile::{Capture, Profile};
//! use throughline_record::{Keeper, Progress, RecordPlan, record};
//!
//! struct Count(usize);
//! impl Keeper for Count {
//!     fn flush(&mut self, profile: &mut Profile) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!         self.0 += profile.samples.drain().len();
//!         Ok(())
//!     }
//!     fn go_on(&mut self, progress: Progress) -> bool {
//!         progress.kept < 1_000
//!     }
//! }
//!
//! let plan = RecordPlan { pids: vec![4242], ..RecordPlan::default() };
//! let mut count = Count(0);
//! let recorded = record(&plan, Capture::default(), &mut count)?;
//! println!("{} samples, {}", count.0, recorded.profile.ledger.balances());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address_space;
mod category;
mod clock;
mod code_map;
mod coverage;
mod fold;
mod function_names;
mod image;
mod inlined;
mod kernel_names;
mod kernel_part;
mod lua_stack;
mod lua_vm;
mod native_names;
mod plan;
mod process;
mod programs;
mod requests;
mod session;
mod state;
mod sys;
mod unwind;

pub use coverage::{ModuleCoverage, ProgramFiles, symbol_coverage};
pub use function_names::FunctionNames;
pub use plan::{PlanError, RecordPlan, SAFE_DURATION, SAFE_RATE_HZ};
pub use programs::ProgramsError;
pub use session::{
    Keeper, Progress, RecordError, Recorded, ThreadTimes, record, record_with, sample_counts,
};
