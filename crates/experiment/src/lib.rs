//! Loads that are known and faults that are known.
//!
//! - [`load`] is a bounded HTTP/1.1 load generator: one thread, closed loop or fixed rate, every
//!   response checked. [`load::LoadPlan`] goes in, [`load::LoadResult`] comes out.
//! - [`lab`] starts a real nginx with a published fault in it, on loopback, under that load, and
//!   tells the process ids so that a recorder can be tried on something whose answer is known.
//!
//! What the caller must do: run [`load::serve`] in a process of its own when it starts a lab with a
//! load (see [`lab::LabPlan::load_command`]), and set the stop flag on SIGINT and SIGTERM.
//!
//! What this crate deliberately does not do: it parses no command line, prints nothing, judges no
//! result, and generates load only on the address it is given.
//!
//! ```
//! for lab in throughline_experiment::lab::list() {
//!     assert!(!lab.symptom.is_empty());
//! }
//! ```

pub mod lab;
pub mod load;
mod sys;
