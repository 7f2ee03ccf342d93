//! The document of `jit --json`. Field names are a contract: fields may be added, never renamed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "jit/1";

/// One look at, or one watch of, the compilers of some processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JitDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub tool: String,
    /// Every VM of every process, by pid.
    pub vm: Vec<VmState>,
    /// Processes without a VM that could be read: pid and reason.
    #[serde(default)]
    pub without_vm: Vec<WithoutVm>,
    /// What happened while it was watched.
    pub events: Option<Events>,
    /// Why there are no events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_reason: Option<String>,
}

/// A process that was asked for and has no VM that could be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WithoutVm {
    /// The process.
    pub pid: u32,
    /// Why.
    pub reason: String,
}

/// One VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmState {
    /// Its process.
    pub pid: u32,
    /// Address of its `global_State`, in hexadecimal.
    pub state: String,
    /// The LuaJIT versions whose layout it has.
    #[serde(default)]
    pub version: String,
    /// Traces that exist.
    pub trace_count: u64,
    /// Traces that may exist.
    pub trace_max: Option<u64>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_max_reason: Option<String>,
    /// Bytes of machine code that are allocated.
    pub mcode_bytes: u64,
    /// Bytes of those that are used or can no longer be.
    #[serde(default)]
    pub mcode_used_bytes: u64,
    /// Bytes that may be allocated.
    pub mcode_max_bytes: Option<u64>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcode_max_bytes_reason: Option<String>,
    /// Whether the compiler is switched on.
    pub jit_on: bool,
    /// Whether a trace was being recorded.
    #[serde(default)]
    pub recording: bool,
    /// Parameters by their name in `jit.opt.start`; empty when they were never set.
    #[serde(default)]
    pub parameters: BTreeMap<String, i64>,
    /// Parts that went on changing while they were read: what is said of them may be torn.
    #[serde(default)]
    pub changed_while_read: Vec<String>,
    /// The functions that were looked through.
    #[serde(default)]
    pub prototypes: Prototypes,
    /// Traces by number.
    pub traces: Vec<LuaTrace>,
    /// Traces that could not be read.
    #[serde(default)]
    pub unreadable_traces: Vec<UnreadableTrace>,
    /// Penalty slots in use.
    pub penalties: Vec<PenaltySlot>,
    /// Starts that are never counted again.
    pub blacklisted: Vec<Blacklisted>,
    /// What became of each start.
    pub starts: Vec<StartState>,
}

/// How many functions were looked through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prototypes {
    /// Functions.
    pub count: u64,
    /// Objects that were followed to find them.
    pub objects: u64,
    /// Whether these are all.
    pub complete: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_reason: Option<String>,
    /// Bytes that were copied out of the process.
    pub bytes_copied: u64,
    /// Time of the look.
    pub look_ns: u64,
}

/// A Lua function by its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionPlace {
    /// Chunk name with its mark: `@file`, `=name`, `[string "..."]`.
    pub source: String,
    /// Line of `function`; 0 for a whole file.
    pub first_line: u32,
    /// Line of its `end`.
    #[serde(default)]
    pub last_line: u32,
    /// Its name in the source file.
    #[serde(default)]
    pub name: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_reason: Option<String>,
}

/// Where a trace starts, or was meant to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Chunk name with its mark.
    pub source: Option<String>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_reason: Option<String>,
    /// Line of the instruction.
    pub line: Option<u32>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_reason: Option<String>,
    /// The plain bytecode: `FORL`, `ITERL`, `ITERN`, `LOOP`, `FUNCF`, ...
    pub op: String,
    /// The function it lies in.
    #[serde(default)]
    pub function: Option<FunctionPlace>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_reason: Option<String>,
    /// Index of the instruction in its function, by which two loops of one line differ.
    #[serde(default)]
    pub instruction: u32,
}

/// A compiled trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LuaTrace {
    /// Its number.
    pub id: u32,
    /// Where it starts; of a side trace, where its parent was left.
    pub start: Start,
    /// Number of the root of its tree; 0 for a root trace.
    pub root: u32,
    /// The trace that it was recorded from: of a side trace the one that was left, of a stitched trace the one before.
    pub parent: Option<u32>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_reason: Option<String>,
    /// Number of the exit of the parent, of a side trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_exit: Option<u32>,
    /// True when it was recorded behind a call that cannot be compiled.
    #[serde(default)]
    pub stitched: bool,
    /// How it ends, as `jit.util.traceinfo` names it.
    pub link: String,
    /// The trace in which it goes on; 0 for none.
    #[serde(default)]
    pub link_to: u32,
    /// Bytes of machine code.
    pub mcode_bytes: u64,
    /// Places where it can be left.
    #[serde(default)]
    pub exits: u32,
    /// Functions whose bodies are inside it.
    pub inlined: Vec<InlinedFunction>,
    /// Further functions that it holds as constants: bodies without a snapshot of their own, or functions that it only handles.
    #[serde(default)]
    pub specialised_to: Vec<InlinedFunction>,
    /// Why what is inside could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlined_reason: Option<String>,
}

/// A function inside a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlinedFunction {
    /// Chunk name with its mark.
    pub source: String,
    /// Line of `function`.
    pub first_line: u32,
}

/// A trace that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnreadableTrace {
    /// Its number.
    pub id: u32,
    /// Why.
    pub reason: String,
}

/// A penalty slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PenaltySlot {
    /// The start.
    pub start: Start,
    /// What stands in the slot.
    pub value: u32,
    /// Aborts that the value tells.
    pub aborts: u32,
    /// Why the last one that it tells failed.
    pub reason: String,
    /// Number of that reason in the VM.
    #[serde(default)]
    pub reason_number: u32,
}

/// A start that is never counted again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Blacklisted {
    /// Chunk name with its mark.
    pub source: Option<String>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_reason: Option<String>,
    /// Line of the instruction.
    pub line: Option<u32>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_reason: Option<String>,
    /// The patched bytecode: `IFORL`, `IITERL`, `ILOOP`, `IFUNCF`, `IFUNCV`.
    pub op: String,
    /// "aborts", or "switched_off" for a function for which `jit.off` was called.
    #[serde(default)]
    pub cause: String,
}

/// A function that the function of a start calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CalledFunction {
    /// By which name.
    pub name: String,
    /// The function, where the name leads to a Lua function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionPlace>,
}

/// What became of a start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StartState {
    /// The start.
    pub start: Start,
    /// Root traces that start here.
    pub compiled: u32,
    /// Aborts that can still be told.
    pub aborts: u32,
    /// "exact", or "lower" when there may have been more: the slot was lost, or a flush has emptied it.
    #[serde(default)]
    pub aborts_bound: String,
    /// Why the last one that can be told failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_reason: Option<String>,
    /// Whether it was given up.
    pub given_up: bool,
    /// Traces with other starts that have its body inside.
    pub body_inlined_in: Vec<u32>,
    /// What its function calls, as far as the bytecode tells.
    #[serde(default)]
    pub calls: Vec<CalledFunction>,
}

/// What happened while it was watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Recordings that were begun: those that ended, by stop or abort.
    pub start: u64,
    /// Traces that were compiled.
    pub stop: u64,
    /// Recordings that were aborted.
    pub abort: u64,
    /// Times that everything compiled was thrown away.
    pub flush: u64,
    /// "polled": the state was compared many times, so that what came and went between two looks is missing; "probe": the
    /// VM told itself.
    pub source: String,
    /// "lower" for polled counts.
    #[serde(default)]
    pub bound: String,
    /// How long it was watched.
    #[serde(default)]
    pub seconds: f64,
    /// How often it was looked at.
    #[serde(default)]
    pub looks: u64,
    /// Single events, oldest first.
    #[serde(default)]
    pub list: Vec<PolledEvent>,
    /// Events that are not in the list.
    #[serde(default)]
    pub list_omitted: u64,
    /// What the events mean, in sentences.
    #[serde(default)]
    pub explanations: Vec<String>,
}

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolledEvent {
    /// Since the watch began.
    pub at_ms: u64,
    /// The process.
    pub pid: u32,
    /// The VM.
    pub state: String,
    /// "stop", "abort", "blacklist" or "flush".
    pub kind: String,
    /// Where, but for a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Number of the trace, of a stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<u32>,
    /// How many, where several came between two looks.
    #[serde(default)]
    pub count: u64,
    /// Why: the reason of an abort, the cause of a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Start {
    /// `source:line op` for people; the source without its mark.
    pub fn label(&self) -> String {
        let source = match &self.source {
            Some(source) => source.strip_prefix(['@', '=']).unwrap_or(source),
            None => "(unknown function)",
        };
        match self.line {
            Some(line) => format!("{source}:{line} {}", self.op),
            None => format!("{source}:? {}", self.op),
        }
    }
}
