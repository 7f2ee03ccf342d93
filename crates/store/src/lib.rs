//! The case file: one SQLite file that holds every capture of an investigation.
//!
//! A recorder opens a [`Case`], begins a capture, and hands its growing profile to
//! [`CaptureWriter::flush`] about once a second: what is new is written in one transaction, so that a
//! kill costs at most the time since the last flush. [`CaptureWriter::finish`] adds the roll-up by
//! function and marks the capture complete. Readers open the same file, also while it is written,
//! and get a [`throughline_profile::Profile`] back with [`Case::load`].
//!
//! The caller must keep one profile per writer and must only let its tables grow. This crate reads
//! no clock and judges nothing; tables, units and codes are described in `FORMATS.md`.
//!
//! A case file may come from anywhere. Rows that contradict each other are left out and counted in
//! [`Damage`]; nothing in a file makes this crate panic or run code from it.
//!
//! ```
//! use throughline_profile::*;
//! use throughline_store::Case;
//! use throughline_units::Nanos;
//!
//! let dir = tempfile::tempdir()?;
//! let case = Case::create_or_open(&dir.path().join("case.tl"))?;
//! let mut profile = Profile::default();
//! let mut writer = case.begin_capture(&profile.capture)?;
//!
//! let name = profile.strings.intern("main");
//! let frame = profile.frames.intern(Frame::new(FrameKind::Native, name));
//! let stack = profile.stacks.push(None, frame);
//! let thread = profile.threads.intern(Thread { pid: 7, tid: 7, comm: name, start_ns: None });
//! profile.samples.push(Sample::on_cpu(Nanos(0), thread, Some(stack)));
//! writer.flush(&mut profile)?;
//! assert!(profile.samples.is_empty());
//! writer.finish(&mut profile)?;
//!
//! let loaded = case.load(None)?;
//! assert_eq!(loaded.profile.samples.len(), 1);
//! assert!(loaded.profile.capture.complete && loaded.damage.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod case;
mod codes;
mod damage;
mod error;
mod facts;
mod load;
mod rollup;
mod schema;
mod write;

pub use case::{CaptureSummary, Case};
pub use damage::Damage;
pub use error::StoreError;
pub use load::Loaded;
pub use rollup::{FunctionCost, Rollup, RollupTotal};
pub use schema::{APPLICATION_ID, VERSION};
pub use write::{CaptureWriter, Flushed};
