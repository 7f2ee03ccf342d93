//! The Lua implementations inside the Python package `lupa`, run by Python.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cache;
use crate::{Build, Fork, Obtained};

/// An implementation that the wheel contains as a module of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LupaModule {
    /// LuaJIT 2.1 of 2026, GC64.
    LuaJit21,
    /// LuaJIT 2.0, which has 32-bit references only.
    LuaJit20,
    /// PUC Lua 5.1.
    Lua51,
    /// PUC Lua 5.4.
    Lua54,
}

impl LupaModule {
    fn name(self) -> &'static str {
        match self {
            LupaModule::LuaJit21 => "luajit21",
            LupaModule::LuaJit20 => "luajit20",
            LupaModule::Lua51 => "lua51",
            LupaModule::Lua54 => "lua54",
        }
    }
}

/// The release that is pinned, so that a new one does not change what is tested.
const LUPA: &str = "lupa==2.8";

const RUNNER: &str = "\
import importlib, sys
runtime = importlib.import_module('lupa.' + sys.argv[1]).LuaRuntime()
load = runtime.eval('function(path, ...) assert(loadfile(path))(...) end')
load(sys.argv[2], *sys.argv[3:])
";

/// One of the wheel's implementations.
pub fn lupa(module: LupaModule) -> Obtained {
    let directory = cache::directory("lupa", |directory| {
        cache::run(
            Command::new("python3")
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--only-binary=:all:",
                ])
                .args([
                    "--root-user-action=ignore",
                    "--disable-pip-version-check",
                    LUPA,
                ])
                .arg("--target")
                .arg(directory),
        )?;
        fs::write(directory.join("run.py"), RUNNER).map_err(|error| error.to_string())
    })?;
    let name = format!("lupa {}", module.name());
    let library_path = library(&directory, module).ok_or_else(|| crate::Unavailable {
        name: name.clone(),
        reason: "the wheel has no such module".to_owned(),
    })?;
    Ok(Build {
        name,
        fork: match module {
            LupaModule::LuaJit21 | LupaModule::LuaJit20 => Fork::Mainline,
            LupaModule::Lua51 | LupaModule::Lua54 => Fork::Puc,
        },
        library_path,
        has_symbols: false,
        vmdef: None,
        program: "python3".into(),
        arguments: vec![
            directory.join("run.py").into_os_string(),
            module.name().into(),
        ],
        environment: vec![("PYTHONPATH", directory.into_os_string())],
    })
}

fn library(directory: &std::path::Path, module: LupaModule) -> Option<PathBuf> {
    let entries = fs::read_dir(directory.join("lupa")).ok()?;
    let mut files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    files.find(|path| {
        path.file_name().is_some_and(|name| {
            name.to_string_lossy()
                .starts_with(&format!("{}.cpython", module.name()))
        })
    })
}
