//! Samples: where a thread was, on a core or waiting off it.

use serde::{Deserialize, Serialize};
use throughline_units::Nanos;

use crate::{Classified, StackId, ThreadId};

/// One kept sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time since the capture began; for off-CPU the time at which the thread left its core.
    pub time: Nanos,
    /// Which thread.
    pub thread: ThreadId,
    /// Where it was; `None` when nothing of the stack could be had.
    pub stack: Option<StackId>,
    /// On-CPU (weight: one sample) or off-CPU (weight: a duration). The two are never summed.
    pub kind: SampleKind,
    /// Whether Lua frames are in the stack, and why not.
    pub lua: LuaContext,
    /// What the VM was doing, when the thread runs one.
    pub vm_state: Option<VmState>,
    /// What sort of code it was in; `None` for off-CPU, and where the recorder did not tell ([`Category::UNKNOWN_REASON`]).
    ///
    /// [`Category::UNKNOWN_REASON`]: crate::Category::UNKNOWN_REASON
    pub category: Option<Classified>,
    /// What is not perfect about this sample.
    pub flags: Flags,
}

impl Sample {
    /// A plain on-CPU sample without Lua.
    #[must_use]
    pub fn on_cpu(time: Nanos, thread: ThreadId, stack: Option<StackId>) -> Self {
        Self {
            time,
            thread,
            stack,
            kind: SampleKind::OnCpu,
            lua: LuaContext::NoVm,
            vm_state: None,
            category: None,
            flags: Flags::default(),
        }
    }
}

/// What was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// The sampling clock fired while the thread ran.
    OnCpu,
    /// The thread was off its core.
    OffCpu(OffCpu),
}

/// One stretch of time off the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// From leaving the core until running again.
    pub duration: Nanos,
    /// The part of `duration` after it was woken, waiting in the run queue; `None` when the wakeup was not seen.
    pub runnable: Option<Nanos>,
    /// Why it left the core.
    pub reason: SwitchReason,
    /// The thread that woke it, when that was seen (it may be outside the targets).
    pub waker: Option<ThreadId>,
    /// Whether this is a wait for work (epoll, accept, an idle pool thread), not for a result.
    pub idle: bool,
}

/// Why a thread left its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchReason {
    /// It waits in the kernel for something.
    Voluntary,
    /// It was runnable and another thread took the core.
    Preempted,
}

/// Whether a sample carries Lua frames, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LuaContext {
    /// Lua frames are in the stack.
    With,
    /// The process has no Lua VM that was found.
    NoVm,
    /// The thread's process has a VM; the native stack shows no VM frame: Lua was not running.
    #[serde(rename = "native_only_thread")]
    NativeOnly,
    /// In the VM's entry or exit code, where no Lua frame exists yet or any more.
    VmEntry,
    /// The VM's build cannot be read; the target's record says why.
    VmUnreadable,
    /// The Lua stack could not be walked: memory changed or was paged out.
    WalkFailed,
    /// The native stack was cut before any VM frame could be seen.
    StackCut,
}

impl LuaContext {
    /// All values, in the order of their codes in the case file.
    pub const ALL: [Self; 7] = [
        Self::With,
        Self::NoVm,
        Self::NativeOnly,
        Self::VmEntry,
        Self::VmUnreadable,
        Self::WalkFailed,
        Self::StackCut,
    ];

    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::With => "with",
            Self::NoVm => "no_vm",
            Self::NativeOnly => "native_only_thread",
            Self::VmEntry => "vm_entry",
            Self::VmUnreadable => "vm_unreadable",
            Self::WalkFailed => "walk_failed",
            Self::StackCut => "stack_cut",
        }
    }

    /// Whether the sample was taken inside Lua, with frames or without.
    #[must_use]
    pub fn inside_lua(self) -> bool {
        matches!(
            self,
            Self::With | Self::VmEntry | Self::VmUnreadable | Self::WalkFailed
        )
    }
}

/// LuaJIT's `g->vmstate`: a trace number, or one of the states of `lj_obj.h` (`LJ_VMST_*`, stored inverted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VmState(pub i32);

/// Imperfections of a kept sample, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// The copied user stack ended before the process entry.
    pub const STACK_TRUNCATED: Self = Self(1);
    /// Unwinding stopped before the process entry for another reason.
    pub const NATIVE_UNWIND_INCOMPLETE: Self = Self(1 << 1);
    /// The innermost frame has no name.
    pub const UNSYMBOLISED_LEAF: Self = Self(1 << 2);
    /// At least one frame was inferred by a rule that can be wrong.
    pub const GUESSED_FRAME: Self = Self(1 << 3);
    /// The Lua stack was deeper than what is walked.
    pub const LUA_TRUNCATED: Self = Self(1 << 4);
    /// The kernel stack could not be had though the thread was in the kernel.
    pub const NO_KERNEL_STACK: Self = Self(1 << 5);
    /// A Lua function's prototype could not be read; its frame says why.
    pub const LUA_PROTO_UNREADABLE: Self = Self(1 << 6);

    /// In machine code of a trace, where code of a function that the innermost Lua frame calls, or has just been returned to
    /// from, may be meant: that frame is marked as guessed, and the self share of the other function is a lower bound.
    pub const LUA_AT_OR_INSIDE: Self = Self(1 << 7);
    /// In machine code that no trace has any more: only the Lua frames up to where the trace was entered are known.
    pub const JIT_NO_TRACE: Self = Self(1 << 8);
    /// In machine code of a trace that changed while it was read, or that contradicts the Lua stack; the same holds.
    pub const JIT_TRACE_CHANGED: Self = Self(1 << 9);
    /// In machine code of a trace that does not tell what it has inlined there; the same holds.
    pub const JIT_NO_SNAPSHOT: Self = Self(1 << 10);

    /// Every flag with its stable name in the ledger.
    pub const NAMED: [(Self, &'static str); 11] = [
        (Self::STACK_TRUNCATED, "stack_truncated"),
        (Self::NATIVE_UNWIND_INCOMPLETE, "native_unwind_incomplete"),
        (Self::UNSYMBOLISED_LEAF, "unsymbolised_leaf"),
        (Self::GUESSED_FRAME, "guessed_frame"),
        (Self::LUA_TRUNCATED, "lua_truncated"),
        (Self::NO_KERNEL_STACK, "no_kernel_stack"),
        (Self::LUA_PROTO_UNREADABLE, "lua_proto_unreadable"),
        (Self::LUA_AT_OR_INSIDE, "lua_at_or_inside"),
        (Self::JIT_NO_TRACE, "jit_no_trace"),
        (Self::JIT_TRACE_CHANGED, "jit_trace_changed"),
        (Self::JIT_NO_SNAPSHOT, "jit_no_snapshot"),
    ];

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The samples of a capture.
#[derive(Clone, Debug, Default)]
pub struct SampleTable {
    rows: Vec<Sample>,
}

impl SampleTable {
    /// Adds one sample.
    pub fn push(&mut self, sample: Sample) {
        self.rows.push(sample);
    }

    /// All samples.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.rows.iter()
    }

    /// Number of samples of both kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes all samples out, for a keeper that writes them as they come.
    pub fn drain(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.rows)
    }
}
