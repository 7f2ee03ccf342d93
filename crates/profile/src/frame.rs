//! Frames: one place in code, with a name or with the reason why it has none.

use serde::{Deserialize, Serialize};

use crate::{ModuleId, StringId, interned_table};

/// What sort of code a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// Machine code of a program or library.
    Native,
    /// The kernel.
    Kernel,
    /// A Lua function; `source` is its chunk name, `first_line` where it is defined.
    Lua,
    /// A function of LuaJIT's own library that has no C function of its own (a fast function).
    LuaBuiltin,
    /// A bytecode handler of LuaJIT's interpreter (`lj_BC_TGETS`).
    Interpreter,
    /// Machine code of a LuaJIT trace.
    Jit,
    /// Machine code made at run time by another compiler (perf map, jitdump).
    OtherJit,
    /// Not code: `[no stack]`, `[truncated]`, a frame that stands for something missing.
    Marker,
}

impl FrameKind {
    /// All kinds, in the order of their codes in the case file.
    pub const ALL: [Self; 8] = [
        Self::Native,
        Self::Kernel,
        Self::Lua,
        Self::LuaBuiltin,
        Self::Interpreter,
        Self::Jit,
        Self::OtherJit,
        Self::Marker,
    ];

    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Lua => "lua",
            Self::LuaBuiltin => "lua_builtin",
            Self::Interpreter => "interpreter",
            Self::Jit => "jit",
            Self::OtherJit => "other_jit",
            Self::Marker => "marker",
        }
    }

    /// Whether the frame is a function of the Lua program.
    #[must_use]
    pub fn is_lua(self) -> bool {
        matches!(self, Self::Lua | Self::LuaBuiltin)
    }
}

/// One place in code.
///
/// The function is `(kind, name, module)` for native code and `(kind, name, source, first_line)` for Lua;
/// `line` and `address` are the place within it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What sort of code.
    pub kind: FrameKind,
    /// Function name for people; for a nameless place, the module and the offset of its function.
    pub name: StringId,
    /// Why there is no real name (`no_symbol_table`, `between_symbols`, ...).
    pub name_reason: Option<StringId>,
    /// Where the code was mapped from.
    pub module: Option<ModuleId>,
    /// Source file, or the Lua chunk name (`@/path/plugin.lua`).
    pub source: Option<StringId>,
    /// Line of the place, 0 when not known.
    pub line: u32,
    /// Line where the function is defined, 0 when not known.
    pub first_line: u32,
    /// Address of the place within its module (file's virtual address), 0 when it has none.
    pub address: u64,
    /// Whether a compiler inlined this function into the frame below it.
    pub inlined: bool,
    /// Whether the frame was inferred by a rule that can be wrong, not by unwind information.
    pub guessed: bool,
}

impl Frame {
    /// A frame of which only kind and name are known.
    #[must_use]
    pub fn new(kind: FrameKind, name: StringId) -> Self {
        Self {
            kind,
            name,
            name_reason: None,
            module: None,
            source: None,
            line: 0,
            first_line: 0,
            address: 0,
            inlined: false,
            guessed: false,
        }
    }
}

interned_table!(FrameTable, FrameId, Frame, "frame");
