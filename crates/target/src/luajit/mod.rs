//! The LuaJIT VM inside another process (x86-64, GC64), read without its help.

mod interpreter;
mod layout;
mod library;
mod prototype;
mod scan;

pub use interpreter::{InterpreterError, interpreter_range};
pub use layout::{
    FunctionLayout, GlobalLayout, JitLayout, JitParams, Layout, Opcodes, PrototypeLayout,
    StringLayout, ThreadLayout, TraceLayout,
};
pub use library::{LuaLibrary, References, identify_library};
pub use prototype::{NoLine, Prototype, PrototypeError, prototype};
pub use scan::{SCAN_LIMIT, Vm, VmReject, VmScan, find_vms};

/// Low 47 bits of a GC64 tagged value: the pointer (`LJ_GCVMASK`, lj_obj.h).
const POINTER_MASK: u64 = (1 << 47) - 1;

/// Type tags as stored in `GCHeader.gct`, the complement of `LJ_T*` (lj_obj.h).
mod gct {
    pub const STRING: u8 = 4;
    pub const THREAD: u8 = 6;
    pub const PROTOTYPE: u8 = 7;
}

/// `GCHeader.gct` of every GC64 object: after `nextgc` (8 bytes) and `marked` (1 byte).
const GCT: u64 = 9;
