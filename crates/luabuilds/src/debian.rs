//! Debian's packages, downloaded and unpacked beside each other instead of installed: the forks
//! cannot be installed together.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::host::host;
use crate::{Build, Fork, Obtained, Unavailable};

/// Both forks install their Lua modules under this name in Debian 12.
const SHARE: &str = "usr/share/luajit-2.1.0-beta3";

/// The `luajit` program of a package (`luajit` or `luajit2`), with the VM linked in, stripped.
pub fn debian_program(package: &str, fork: Fork) -> Obtained {
    let directory = unpacked(package, fork)?;
    let program = directory.join("usr/bin/luajit");
    Ok(Build {
        name: format!("Debian {package}"),
        fork,
        library_path: program.clone(),
        has_symbols: false,
        vmdef: Some(directory.join(SHARE).join("jit/vmdef.lua")),
        program,
        arguments: Vec::new(),
        environment: vec![("LUA_PATH", lua_path(&directory))],
    })
}

/// The shared library of a package (`libluajit-5.1-2` or `libluajit2-5.1-2`), stripped, in a small
/// host program.
pub fn debian_library(package: &str, fork: Fork) -> Obtained {
    let directory = unpacked(package, fork)?;
    let library = directory.join("usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2.1.0");
    Ok(Build {
        name: format!("Debian {package}"),
        fork,
        has_symbols: false,
        vmdef: Some(directory.join(SHARE).join("jit/vmdef.lua")),
        program: host()?,
        arguments: vec![library.clone().into_os_string()],
        environment: vec![("LUA_PATH", lua_path(&directory))],
        library_path: library,
    })
}

fn lua_path(directory: &Path) -> OsString {
    let mut path = directory.join(SHARE).into_os_string();
    path.push("/?.lua");
    path
}

fn unpacked(package: &str, fork: Fork) -> Result<PathBuf, Unavailable> {
    let modules = match fork {
        Fork::OpenResty => "libluajit2-5.1-common",
        Fork::Mainline | Fork::Puc => "libluajit-5.1-common",
    };
    cache::directory(&format!("Debian {package}"), |directory| {
        let mut download = Command::new("apt-get");
        download
            .current_dir(directory)
            .args(["download", "-q", package, modules]);
        if cache::run(&mut download).is_err() {
            cache::run(Command::new("apt-get").args(["update", "-q"]))?;
            cache::run(&mut download)?;
        }
        for file in debs(directory)? {
            cache::run(Command::new("dpkg-deb").arg("-x").arg(file).arg(directory))?;
        }
        Ok(())
    })
}

fn debs(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(files
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect())
}
