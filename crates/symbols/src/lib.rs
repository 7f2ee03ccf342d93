//! Address to name, or the reason why there is none.
//!
//! - [`ModuleSymbols`]: one mapped ELF file, with its debug file when there is one.
//! - [`PerfMap`] and [`JitDump`]: code that a JIT wrote.
//!
//! - [`DebugFileFinder`] and [`PackageOwners`]: the only parts that open files, to find the debug
//!   file of a module, and with [`ModuleSymbols::coverage`] to say before a recording
//!   what will be nameless and what would name it.
//!
//! The caller gives bytes: it finds the files of a process, translates instruction pointers to
//! the addresses that the file states ([`ModuleSymbols::svma_of_file_offset`]), asks about the byte
//! before a return address, and keeps the answers, because a look-up demangles and allocates.
//!
//! Every input is hostile. A damaged table costs the names in it, not the others, and not the
//! process; whatever a file can make the reader allocate is bounded.
//!
//! Not done here, on purpose: no process is started, nothing is fetched from a network, no clock
//! is read, and names are not escaped: a function may be called `<script>`.
//!
//! ```
//! use throughline_symbols::{Lookup, ModuleSymbols, NameReason, Options};
//!
//! let file = std::fs::read(std::env::current_exe()?)?;
//! let module = ModuleSymbols::parse(file.into(), &Options::default())?;
//! match module.lookup(0x1000) {
//!     Lookup::Named { function, .. } => println!("{}", function.display),
//!     Lookup::Unnamed { reason, .. } => println!("nameless: {reason}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address_map;
mod bytes;
mod coverage;
mod debug_files;
mod demangle;
mod dwarf;
mod elf;
mod function_starts;
mod function_table;
mod go_table;
mod jitdump;
mod lookup;
mod metered;
mod mini_debug_info;
mod module;
mod names;
mod packages;
mod perf_map;
mod plt;
mod sys;

pub use bytes::SharedBytes;
pub use coverage::{Advice, SymbolCoverage};
pub use debug_files::{DebugFileError, DebugFileFinder, DebugKey, FoundDebugFile, open_file_below};
pub use dwarf::DebugInfo;
pub use elf::{AlternateLink, BuildId, DebugLink, ElfError, LoadSegment, alternate_link, build_id};
pub use go_table::GoFrame;
pub use jitdump::{JitDump, JitDumpCounts, JitDumpError};
pub use lookup::{InlinedCall, Lookup, Name, NameReason, SourceLine};
pub use module::{DebugFile, ModuleSymbols, Options, TableSizes};
pub use packages::PackageOwners;
pub use perf_map::{PerfMap, PerfMapCounts};
