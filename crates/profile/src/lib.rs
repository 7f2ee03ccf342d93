//! The profile: what a capture holds once addresses have become frames.
//!
//! A [`Profile`] is a set of tables that refer to each other by typed handles: samples point to a
//! stack and a thread, a stack is a frame on top of another stack, a frame points to its strings
//! and its module. One file per table. The recorder fills a profile, the case file keeps it, the
//! analyses and the page read it.
//!
//! The caller must use handles only with the profile that gave them. Nothing here does I/O, reads a
//! clock, or knows how a sample was taken; nothing here sums weights of different kinds.
//!
//! ```
//! use throughline_profile::*;
//! use throughline_units::Nanos;
//! let mut profile = Profile::default();
//! let name = profile.strings.intern("main");
//! let frame = profile.frames.intern(Frame::new(FrameKind::Native, name));
//! let stack = profile.stacks.push(None, frame);
//! let thread = profile.threads.intern(Thread { pid: 7, tid: 7, comm: name, start_ns: None });
//! profile.samples.push(Sample::on_cpu(Nanos(0), thread, Some(stack)));
//! assert_eq!(profile.stacks.depth(stack), 1);
//! ```

mod capture;
mod category;
mod escape;
mod frame;
mod function;
mod ledger;
mod measure;
mod module;
mod rollup;
mod sample;
mod stack;
mod strings;
mod thread;

pub use capture::{Capture, CaptureKind, LuaVm, RequestCount, Target};
pub use category::{Category, CategorySet, Classified};
pub use escape::escape;
pub use frame::{Frame, FrameId, FrameKind, FrameTable};
pub use function::Function;
pub use ledger::Ledger;
pub use measure::Measure;
pub use module::{Module, ModuleId, ModuleTable};
pub use rollup::{Cost, Groups, StackWeights};
pub use sample::{
    Flags, LuaContext, OffCpu, Sample, SampleKind, SampleTable, SwitchReason, VmState,
};
pub use stack::{StackId, StackTable};
pub use strings::{StringId, StringTable};
pub use thread::{Thread, ThreadId, ThreadTable};

/// All tables of one capture.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// What was recorded, how, and for how long.
    pub capture: Capture,
    /// What was taken, kept, lost and flagged.
    pub ledger: Ledger,
    /// Every distinct name, once.
    pub strings: StringTable,
    /// Files and pseudo files that code was mapped from.
    pub modules: ModuleTable,
    /// Distinct frames.
    pub frames: FrameTable,
    /// Distinct stacks, as a tree of frames.
    pub stacks: StackTable,
    /// Threads seen.
    pub threads: ThreadTable,
    /// The samples, in the order of time in which they were kept.
    pub samples: SampleTable,
}

/// A table of distinct rows, handed out as a typed index.
macro_rules! interned_table {
    ($table:ident, $id:ident, $row:ty, $what:literal) => {
        #[doc = concat!("Handle of a ", $what, " in its table.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(pub u32);

        impl $id {
            /// Position in the table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        #[doc = concat!("Every distinct ", $what, ", once.")]
        #[derive(Clone, Debug, Default)]
        pub struct $table {
            rows: Vec<$row>,
            index: rustc_hash::FxHashMap<$row, $id>,
        }

        impl $table {
            #[doc = concat!("The handle of this ", $what, ", new or known.")]
            pub fn intern(&mut self, row: $row) -> $id {
                if let Some(&id) = self.index.get(&row) {
                    return id;
                }
                let id = $id(self.rows.len() as u32);
                self.rows.push(row.clone());
                self.index.insert(row, id);
                id
            }

            /// The row behind a handle of this table.
            #[must_use]
            pub fn get(&self, id: $id) -> &$row {
                &self.rows[id.index()]
            }

            /// Rows in the order in which they were first seen.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = ($id, &$row)> {
                self.rows
                    .iter()
                    .enumerate()
                    .map(|(i, row)| ($id(i as u32), row))
            }

            /// Number of rows.
            #[must_use]
            pub fn len(&self) -> usize {
                self.rows.len()
            }

            /// Whether there is no row.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.rows.is_empty()
            }
        }
    };
}
pub(crate) use interned_table;
