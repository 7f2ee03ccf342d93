//! Before a recording: which code of a module will be nameless, and what would name it.

use std::path::{Path, PathBuf};

use crate::elf::BuildId;
use crate::module::{ModuleSymbols, TableSizes};

/// How much of a module's code has names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolCoverage {
    /// Functions according to unwinding entries; 0 when the module has none (Go).
    pub functions_by_fde: u64,
    /// Of those, how many a symbol names.
    pub named: u64,
    /// Bytes of code in those functions.
    pub code_bytes: u64,
    /// Of those, how many lie in named functions.
    pub named_bytes: u64,
    /// Only exported names are known: whatever the module does not export is nameless.
    pub exported_only: bool,
    /// Where the names come from.
    pub tables: TableSizes,
    /// What to do about it; `None` when internal names are known.
    pub advice: Option<Advice>,
}

/// What would name the rest of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Install a package of debug symbols.
    InstallPackage {
        /// The package to install.
        package: String,
        /// The build that it must match.
        build_id: BuildId,
    },
    /// Put a debug file of this build where it is looked for.
    PlaceDebugFile {
        /// The whole path.
        path: PathBuf,
        /// The build that it must match.
        build_id: BuildId,
    },
    /// Build the module again: nothing can be matched with it.
    RebuildWithBuildId,
}

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InstallPackage { package, build_id } => {
                write!(f, "install {package} (build-id {build_id})")
            }
            Self::PlaceDebugFile { path, build_id } => write!(
                f,
                "place the debug file of build-id {build_id} at {}",
                path.display()
            ),
            Self::RebuildWithBuildId => {
                f.write_str("build it without stripping, or with -Wl,--build-id and a debug file")
            }
        }
    }
}

impl ModuleSymbols {
    /// How much of the module has names. `package` is its owner, when one is known
    /// ([`crate::PackageOwners`]).
    pub fn coverage(&self, package: Option<&str>) -> SymbolCoverage {
        let mut coverage = SymbolCoverage {
            functions_by_fde: 0,
            named: 0,
            code_bytes: 0,
            named_bytes: 0,
            exported_only: false,
            tables: self.table_sizes(),
            advice: None,
        };
        for (start, end) in self.function_extents() {
            coverage.functions_by_fde += 1;
            coverage.code_bytes += end - start;
            if self.has_name(start) {
                coverage.named += 1;
                coverage.named_bytes += end - start;
            }
        }
        if !coverage.tables.has_internal_names() {
            coverage.exported_only = coverage.tables.dynsym > 0;
            // A library that exports all it has needs nothing.
            if coverage.named < coverage.functions_by_fde || coverage.functions_by_fde == 0 {
                coverage.advice = Some(advice(self.build_id(), package));
            }
        }
        coverage
    }
}

fn advice(build_id: Option<&BuildId>, package: Option<&str>) -> Advice {
    let Some(build_id) = build_id.cloned() else {
        return Advice::RebuildWithBuildId;
    };
    match package {
        Some(package) => Advice::InstallPackage {
            package: debug_package(package),
            build_id,
        },
        None => Advice::PlaceDebugFile {
            path: Path::new("/usr/lib/debug").join(build_id.debug_path()),
            build_id,
        },
    }
}

/// Debian builds `NAME-dbgsym` for each package; the C library's is older than that rule.
fn debug_package(package: &str) -> String {
    match package {
        "libc6" | "libc-bin" => "libc6-dbg".to_owned(),
        _ => format!("{package}-dbgsym"),
    }
}
