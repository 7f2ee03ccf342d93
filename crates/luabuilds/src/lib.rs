//! Real LuaJIT builds, for tests of what reads them from outside.
//!
//! Each function obtains one build from a package registry (Debian's, Rust's, Python's), builds or
//! unpacks it once under the target directory, and answers with what is needed to run a Lua script
//! in it. When that is not possible the answer says why, and a test that uses it prints
//! `SKIPPED: <build>: <why>` by [`ready`].
//!
//! Only tests use this crate: it runs compilers and package tools, blocks for as long as they take,
//! and installs nothing outside of the target directory.

mod cache;
mod crates_io;
mod debian;
mod host;
mod pypi;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub use crates_io::{NEWEST, luajit_src, luajit_src_compact, luajit_src_lua52};
pub use debian::{debian_library, debian_program};
pub use pypi::{LupaModule, lupa};

/// Which project's sources a build is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// LuaJIT itself.
    Mainline,
    /// OpenResty's fork.
    OpenResty,
    /// The interpreter of PUC-Rio, which is no LuaJIT.
    Puc,
}

/// A Lua that can run scripts.
#[derive(Debug, Clone)]
pub struct Build {
    /// Such as "luajit-src 210.4.8" or "Debian libluajit2-5.1-2".
    pub name: String,
    /// Whose sources.
    pub fork: Fork,
    /// The ELF file that holds the VM: a program or a shared library.
    pub library_path: PathBuf,
    /// True when that file has a symbol table with the VM's internal names.
    pub has_symbols: bool,
    /// The installed `jit/vmdef.lua` of this build, where it came with one: its own list of fast
    /// functions and bytecodes.
    pub vmdef: Option<PathBuf>,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

impl Build {
    /// Starts the Lua script at `script` with `arguments` (its `...`); its standard output is a
    /// pipe. The caller ends the child, and scripts should end by themselves too.
    pub fn run(&self, script: &Path, arguments: &[&str]) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.arguments)
            .arg(script)
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    }
}

/// Why a build is not to be had on this machine.
#[derive(Debug, Clone)]
pub struct Unavailable {
    /// The build.
    pub name: String,
    /// What was tried and how it failed.
    pub reason: String,
}

/// A build, or why there is none.
pub type Obtained = Result<Build, Unavailable>;

/// Every LuaJIT with GC64 that the registries offer and the tool must read.
pub fn all() -> Vec<Obtained> {
    let mut builds = vec![
        debian_program("luajit2", Fork::OpenResty),
        debian_program("luajit", Fork::Mainline),
        debian_library("libluajit2-5.1-2", Fork::OpenResty),
        debian_library("libluajit-5.1-2", Fork::Mainline),
        lupa(LupaModule::LuaJit21),
    ];
    builds.extend(
        crates_io::GC64_VERSIONS
            .iter()
            .map(|version| luajit_src(version)),
    );
    builds
}

/// The build, or `None` after telling on standard error what was skipped and why.
pub fn ready(obtained: Obtained) -> Option<Build> {
    match obtained {
        Ok(build) => Some(build),
        Err(Unavailable { name, reason }) => {
            eprintln!("SKIPPED: {name}: {reason}");
            None
        }
    }
}
