//! Before a recording: which modules of the targets will show nameless frames, and what would name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use throughline_symbols::PackageOwners;
use throughline_target::{LiveProcess, LuaLibrary};

use crate::address_space::AddressSpace;
use crate::image::Images;

/// Where Debian's package manager lists the files of each package.
const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// What is known of one module's names.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleCoverage {
    /// Path as the process sees it.
    pub path: String,
    /// Share of its code that has names, 0 to 1; `None` when the file does not tell where its functions are.
    pub named_share: Option<f64>,
    /// Only exported functions have names.
    pub exported_only: bool,
    /// It is LuaJIT: its bytecode handlers are named from the VM itself.
    pub luajit: bool,
    /// What would name the rest, as a sentence.
    pub advice: Option<String>,
    /// Why nothing of it can be read, when nothing can.
    pub unreadable: Option<String>,
}

/// Program files that have been read, so that the recording does not read them again.
#[derive(Clone, Default)]
pub struct ProgramFiles(pub(crate) Images);

/// Every module of the processes, those with the least names first. Processes that cannot be read are left out: recording them
/// says why.
#[must_use]
pub fn symbol_coverage(pids: &[u32], files: &mut ProgramFiles) -> Vec<ModuleCoverage> {
    let ProgramFiles(images) = files;
    let mut modules = BTreeMap::new();
    for &pid in pids {
        let Ok(process) = LiveProcess::open(pid) else {
            continue;
        };
        let Ok(space) = AddressSpace::read(&process, images) else {
            continue;
        };
        for mapped in space.images().filter(|mapped| mapped.path.starts_with('/')) {
            modules
                .entry(mapped.path.clone())
                .or_insert_with(|| mapped.image.clone());
        }
    }
    let paths: Vec<PathBuf> = modules.keys().map(PathBuf::from).collect();
    let owners = PackageOwners::read(Path::new(DPKG_LISTS), &paths).ok();
    let mut coverage: Vec<ModuleCoverage> = modules
        .into_iter()
        .map(|(path, image)| {
            let mut module = ModuleCoverage {
                named_share: None,
                exported_only: false,
                luajit: false,
                advice: None,
                unreadable: None,
                path,
            };
            match image.as_ref().map_err(Clone::clone).and_then(|image| {
                module.luajit = matches!(image.lua(), LuaLibrary::LuaJit { .. });
                image.symbols().map_err(str::to_owned)
            }) {
                Ok(symbols) => {
                    let owner = owners
                        .as_ref()
                        .and_then(|owners| owners.owner(Path::new(&module.path)));
                    let known = symbols.coverage(owner);
                    module.exported_only = known.exported_only;
                    module.advice = known.advice.map(|advice| advice.to_string());
                    module.named_share = (known.code_bytes > 0)
                        .then(|| known.named_bytes as f64 / known.code_bytes as f64);
                }
                Err(reason) => module.unreadable = Some(reason),
            }
            module
        })
        .collect();
    coverage.sort_by(|a, b| {
        a.named_share
            .unwrap_or(0.0)
            .total_cmp(&b.named_share.unwrap_or(0.0))
    });
    coverage
}
