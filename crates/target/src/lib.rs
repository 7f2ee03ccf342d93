//! Another process's memory, and the LuaJIT VM in it.
//!
//! This crate finds LuaJIT VMs in a process that does not help, and reads their structures: where a
//! Lua function was defined, which line an instruction is of, what a bytecode handler or a fast
//! function is called, where machine code lies and which trace it is of.
//!
//! - Every reader takes a [`Memory`], the text of a file or the bytes of an ELF file, and never a
//!   pid or a path: [`LiveProcess`] is the memory of a running process, [`FixtureMemory`] that of a
//!   test.
//! - The target is never stopped, so what is read may change while it is read. Readers check what
//!   they can (type tags, sizes, a second look) and are bounded: a wrong pointer costs one error.
//!   The caller decides what to try again; [`Vm::is_alive`] says whether a VM is still there.
//! - Nothing is written to the target, nothing is loaded into it, and no code of it is run.
//! - What is absent has a reason: [`VmReject`], [`PrototypeError`], [`NoLine`], [`MemoryError`].
//!
//! Not covered, and refused by name: LuaJIT with 32-bit references, PUC Lua, other architectures
//! than x86-64.
//!
//! ```no_run
//! use throughline_target::{LiveProcess, find_vms, parse_maps};
//!
//! let process = LiveProcess::open(4242)?;
//! let maps = parse_maps(&process.maps()?);
//! for vm in find_vms(&process, &maps.mappings)?.vms {
//!     println!("{:#x}: {}", vm.global_state, vm.layout.name);
//! }
//! # Ok::<(), throughline_target::MemoryError>(())
//! ```

mod fixture;
mod luajit;
mod maps;
mod memory;
mod probe;
mod process;

pub use fixture::FixtureMemory;
pub use luajit::{
    ABORTS_TO_GIVE_UP, Callee, Census, CensusTrace, CopiedMemory, FastFunctionNames, FlushCause,
    FrameFunction, FunctionLayout, GlobalLayout, Handler, HandlerKind, HandlersError, HeapSurvey,
    InterpreterError, JitEvent, JitLayout, JitParameter, JitParams, JitPulse, JitWatch, Layout,
    LinkType, LuaLibrary, MachineCode, MachineCodeUse, NoLine, Opcodes, Origin, Parameters, Part,
    Patched, Penalty, Place, Prototype, PrototypeError, PrototypeLayout, PulseSlot, References,
    SCAN_LIMIT, Snapshot, SnapshotFrame, Snapshots, StartSummary, StringLayout, SurveyEnd,
    ThreadLayout, Trace, TraceError, TraceLayout, Vm, VmReject, VmScan, WatchedStart, abort_reason,
    bytecode_start, calls, census, derived_aborts, fast_function_names, find_vms, handlers,
    identify_library, interpreter_range, jit_parameters, jit_pulse, machine_code, place_of,
    prototype, snapshots, trace, trace_at, trace_count, unseen,
};
pub use maps::{Mapping, Maps, Permissions, find_mapping, parse_maps};
pub use memory::{Memory, MemoryError};
pub use probe::{
    Probe, ProbeError, ProbeEvents, ProbeFunction, ProbeInstalled, ProbeStart, parse_probe,
    probe_mappings, read_probe, read_requests,
};
pub use process::LiveProcess;
