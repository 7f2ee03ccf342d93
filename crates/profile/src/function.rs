//! Functions: what frames are places in.

use crate::{Frame, FrameKind, ModuleId, StringId};

/// A function, as people mean it: all its lines and addresses together.
///
/// Machine code is the same function when `(kind, name, module)` are equal; Lua code when
/// `(kind, name, source, first_line)` are. What does not count is left empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// What sort of code.
    pub kind: FrameKind,
    /// Name as its frames carry it.
    pub name: StringId,
    /// Where machine code was mapped from; `None` for Lua.
    pub module: Option<ModuleId>,
    /// Chunk name of a Lua function; `None` for machine code.
    pub source: Option<StringId>,
    /// Line where a Lua function is defined; 0 for machine code.
    pub first_line: u32,
}

impl Function {
    /// The function that a frame is in.
    #[must_use]
    pub fn of(frame: &Frame) -> Self {
        let lua = frame.kind.is_lua();
        Self {
            kind: frame.kind,
            name: frame.name,
            module: if lua { None } else { frame.module },
            source: if lua { frame.source } else { None },
            first_line: if lua { frame.first_line } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_addresses_of_one_function_are_one_function() {
        let mut native = Frame::new(FrameKind::Native, StringId(1));
        native.module = Some(ModuleId(0));
        let mut elsewhere = native.clone();
        elsewhere.address = 0x4000;
        elsewhere.line = 12;
        assert_eq!(Function::of(&native), Function::of(&elsewhere));
        elsewhere.module = Some(ModuleId(1));
        assert_ne!(Function::of(&native), Function::of(&elsewhere));
    }

    #[test]
    fn lua_functions_of_one_name_differ_by_where_they_are_defined() {
        let mut here = Frame::new(FrameKind::Lua, StringId(1));
        here.source = Some(StringId(2));
        here.first_line = 10;
        let mut there = here.clone();
        there.line = 11;
        assert_eq!(Function::of(&here), Function::of(&there));
        there.first_line = 30;
        assert_ne!(Function::of(&here), Function::of(&there));
    }
}
