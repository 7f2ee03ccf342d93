//! Modules: files, and things that stand for files, that code was mapped from.

use crate::{StringId, interned_table};

/// A file, `[vdso]`, `[kernel]`, or the anonymous memory of a compiler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Path as the target process saw it.
    pub path: StringId,
    /// GNU build id in lower-case hex, when the file has one.
    pub build_id: Option<StringId>,
}

interned_table!(ModuleTable, ModuleId, Module, "module");
