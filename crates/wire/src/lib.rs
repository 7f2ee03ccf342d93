//! Records shared between the BPF program and the recorder, from one list for both sides.
//!
//! The BPF program is C and the recorder is Rust. Sizes, limits, offsets and the codes of every failure
//! are written here once; [`c_header`] turns them into the header that the C side includes, with an
//! assertion for every struct, so that the two cannot drift apart.
//!
//! The caller must treat the bytes of a record as hostile: [`SampleRecord::parse`] checks every length.
//! Nothing here does I/O, and nothing says what a record means: that is the recorder's part.
//!
//! ```
//! use throughline_wire::{SampleRecord, WireError};
//! assert_eq!(SampleRecord::parse(&[0; 4]).err(), Some(WireError::Truncated));
//! ```

mod counter;
mod header;
mod process;
mod sample;
mod settings;

pub use counter::Counter;
pub use header::{c_assertions, c_header};
pub use process::{ProcessEvent, ProcessRecord};
pub use sample::{
    BaseSource, LuaFrame, LuaState, SampleHeader, SampleRecord, WireError, record_kind,
};
pub use settings::{Settings, TargetEntry, ThreadAccount, VmEntry};

/// Bounds of what one record can carry; each is a compromise between the verifier, memory and depth.
pub mod limits {
    /// Largest copy of a user stack, in bytes. The whole record then stays under 32 KiB, which is what a per-CPU map value
    /// may have and what the kernel's allocator hands out for the record that is held per waiting thread.
    pub const STACK_BYTES_MAX: usize = 27 * 1024;
    /// Size of the ring: at 499 Hz a busy thread fills about 3 MB a second, and the recorder looks 20 times a second, and sooner when a quarter
    /// is full.
    pub const RING_BYTES: usize = 16 * 1024 * 1024;
    /// Kernel frames.
    pub const KERNEL_FRAMES_MAX: usize = 48;
    /// Lua frames of all states together.
    pub const LUA_FRAMES_MAX: usize = 120;
    /// Coroutines or nested VM entries whose Lua stacks are walked.
    pub const LUA_STATES_MAX: usize = 4;
    /// VMs of one process that are recognised.
    pub const VMS_MAX: usize = 8;
    /// Bytes of what the kernel calls an address, its final NUL included. Functions of C have short names; those of Rust are
    /// mangled and can be cut.
    pub const KERNEL_SYMBOL_TEXT: usize = 256;
}

/// Codes of `SampleHeader::kind` and of the first word of every record.
pub mod kind {
    /// A running thread, by the sampling clock.
    pub const ON_CPU: u32 = 1;
    /// A thread that was off its core and runs again.
    pub const OFF_CPU: u32 = 2;
    /// A process of the targets forked, executed or ended.
    pub const PROCESS: u32 = 3;
}

/// Bits of `SampleHeader::faults`: what the BPF program could not do for this sample.
pub mod fault {
    /// The Lua stack is deeper than [`super::limits::LUA_FRAMES_MAX`].
    pub const LUA_DEPTH: u32 = 1;
    /// A slot of the Lua stack could not be read.
    pub const LUA_SLOT: u32 = 1 << 1;
    /// A function object could not be read.
    pub const LUA_FUNCTION: u32 = 1 << 2;
    /// A slot did not hold a function: the stack changed or the base was stale.
    pub const LUA_NOT_FUNCTION: u32 = 1 << 3;
    /// The instruction before a return point could not be read.
    pub const LUA_INSTRUCTION: u32 = 1 << 4;
    /// The user stack reaches beyond what is copied.
    pub const STACK_LIMIT: u32 = 1 << 5;
    /// A page of the user stack could not be read.
    pub const STACK_UNREADABLE: u32 = 1 << 6;
    /// The thread was in the kernel and its kernel stack could not be had.
    pub const NO_KERNEL_STACK: u32 = 1 << 7;
}
