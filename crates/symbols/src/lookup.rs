//! The vocabulary of an answer: a name with its start, lines and inlined calls, or the reason
//! why there is no name.

use std::fmt;
use std::sync::Arc;

/// What one address is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A function's name is known.
    Named {
        /// The function that occupies machine code of its own at the address.
        function: Name,
        /// Its first address, in the address space of the question (SVMA for an ELF file).
        function_start: u64,
        /// The line inside `function`: of the address itself, or, when something is inlined there,
        /// of the outermost inlined call. `None` when no debug information covers the address
        /// ([`crate::ModuleSymbols::debug_info`] says why).
        source: Option<SourceLine>,
        /// The calls that the compiler inlined at the address, innermost first.
        inlined: Vec<InlinedCall>,
    },
    /// There is no name.
    Unnamed {
        /// The first address of the nameless function, where unwinding information or another
        /// table gives it: nameless samples of one function group by it.
        function_start: Option<u64>,
        /// Why there is no name.
        reason: NameReason,
    },
}

impl Lookup {
    /// The answer "no name, not even a function start".
    pub(crate) fn unnamed(reason: NameReason) -> Self {
        Self::Unnamed {
            function_start: None,
            reason,
        }
    }

    /// The text to show: the function's name, or `module+0x1230` with the function's start (the
    /// address itself when no start is known).
    pub fn label(&self, module: &str, address: u64) -> String {
        match self {
            Self::Named { function, .. } => function.display.clone(),
            Self::Unnamed { function_start, .. } => {
                format!("{module}+{:#x}", function_start.unwrap_or(address))
            }
        }
    }

    /// The reason for an absent name.
    pub fn reason(&self) -> Option<NameReason> {
        match self {
            Self::Named { .. } => None,
            Self::Unnamed { reason, .. } => Some(*reason),
        }
    }
}

/// A function's name, as people read it and as the file stores it.
///
/// Both come from foreign files and may hold anything, terminal escapes included: whoever prints
/// them escapes them. They are valid UTF-8 (other bytes became U+FFFD) and at most
/// [`Name::MAX_BYTES`] long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Demangled, without Rust's hash and without an ELF symbol version.
    pub display: String,
    /// As in the symbol table.
    pub raw: String,
}

impl Name {
    /// Longer names are cut. Real C++ names reach about 10 KB.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// The name of a symbol that comes from elsewhere, such as one of the kernel's.
    #[must_use]
    pub fn of(raw: &str) -> Self {
        crate::demangle::name_of(raw.as_bytes())
    }
}

/// A source file and a line in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The path as the compiler recorded it.
    pub file: Arc<str>,
    /// Counted from 1; `None` where the compiler says that no line belongs to the code.
    pub line: Option<u32>,
}

/// One call that was inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlinedCall {
    /// The function whose body was copied.
    pub function: Name,
    /// The line inside that function.
    pub source: Option<SourceLine>,
}

macro_rules! name_reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Why an address has no name. The texts of [`NameReason::as_str`] are stable: case files
        /// and JSON documents carry them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum NameReason {
            $($(#[$doc])* $variant,)*
        }

        impl NameReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable text, in snake case.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The reason with this stable text.
            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
    };
}

name_reasons! {
    /// The file has no symbol of any function, not even an exported one.
    NoSymbolTable = "no_symbol_table",
    /// The file has symbols, and none of them covers the address.
    BetweenSymbols = "between_symbols",
    /// The address lies in none of the file's executable sections or segments.
    OutsideSections = "outside_sections",
    /// The first entry of a procedure linkage table: the jump into the dynamic linker's resolver.
    PltHeader = "plt_header",
    /// The module's file carries no build id, so no debug file can be matched with it.
    NoBuildId = "no_build_id",
    /// The mapped file was deleted or replaced and cannot be read any more.
    DeletedUnreadable = "deleted_unreadable",
    /// The mapped file exists and cannot be opened (permission, namespace, I/O error).
    Unreadable = "unreadable",
    /// The mapped file is not an ELF file.
    NotElf = "not_elf",
    /// The mapped file is an ELF file of a kind that is not read (32 bit, big endian, an object
    /// file that is not linked).
    UnsupportedElf = "unsupported_elf",
    /// Executable memory that no file backs, and no perf map or jitdump covers the address.
    AnonymousMemory = "anonymous_memory",
    /// Generated code lay at the address at other times, not at the time asked about.
    NotMappedThen = "not_mapped_then",
    /// No mapping of the process covered the address.
    NoMapping = "no_mapping",
    /// The tables that would name the address are damaged.
    Damaged = "damaged",
}

impl fmt::Display for NameReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
