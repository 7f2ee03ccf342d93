//! The LuaJIT VM inside another process (x86-64, GC64), read without its help.

mod census;
mod exits;
mod fast_functions;
mod handlers;
mod interpreter;
mod layout;
mod library;
mod prototype;
mod scan;
mod snapshot;
mod trace;
mod unseen;

pub use census::{
    ABORTS_TO_GIVE_UP, Callee, Census, CensusTrace, CopiedMemory, FlushCause, HeapSurvey, JitEvent,
    JitParameter, JitPulse, JitWatch, MachineCodeUse, Parameters, Part, Patched, Penalty, Place,
    PulseSlot, StartSummary, SurveyEnd, WatchedStart, abort_reason, calls, census, derived_aborts,
    jit_parameters, jit_pulse, place_of,
};
pub use fast_functions::{FastFunctionNames, fast_function_names};
pub use handlers::{Handler, HandlerKind, HandlersError, handlers};
pub use interpreter::{InterpreterError, interpreter_range};
pub use layout::{
    FunctionLayout, GlobalLayout, JitLayout, JitParams, Layout, Opcodes, PrototypeLayout,
    StringLayout, ThreadLayout, TraceLayout,
};
pub use library::{LuaLibrary, References, identify_library};
pub use prototype::{NoLine, Prototype, PrototypeError, bytecode_start, prototype};
pub use scan::{SCAN_LIMIT, Vm, VmReject, VmScan, find_vms};
pub use snapshot::{FrameFunction, Snapshot, SnapshotFrame, Snapshots, snapshots};
pub use trace::{
    LinkType, MachineCode, Origin, Trace, TraceError, machine_code, trace, trace_at, trace_count,
};
pub use unseen::unseen;

/// Low 47 bits of a GC64 tagged value: the pointer (`LJ_GCVMASK`, lj_obj.h).
const POINTER_MASK: u64 = (1 << 47) - 1;

/// Type tags as stored in `GCHeader.gct`, the complement of `LJ_T*` (lj_obj.h).
mod gct {
    pub const STRING: u8 = 4;
    pub const THREAD: u8 = 6;
    pub const PROTOTYPE: u8 = 7;
    pub const FUNCTION: u8 = 8;
    pub const TRACE: u8 = 9;
    pub const TABLE: u8 = 11;
}

/// `GCHeader.gct` of every GC64 object: after `nextgc` (8 bytes) and `marked` (1 byte).
const GCT: u64 = 9;
