//! Threads that were seen.

use crate::{StringId, interned_table};

/// A thread. Ids are those of the recorder's pid namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process (thread group) id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread as the kernel had it (15 bytes; hostile).
    pub comm: StringId,
    /// Start time in ns since boot, which tells apart two uses of one id.
    pub start_ns: Option<u64>,
}

interned_table!(ThreadTable, ThreadId, Thread, "thread");
