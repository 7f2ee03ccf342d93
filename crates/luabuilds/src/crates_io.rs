//! LuaJIT from the sources in the crate `luajit-src`, at pinned versions. Versions from 210.1 to
//! 210.4 are OpenResty's fork, the others mainline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::{Build, Fork, Obtained, Unavailable};

/// The newest release that was looked at.
pub const NEWEST: &str = "210.7.4";

/// One release of each layout that the crate offers, from the oldest to the newest.
pub(crate) const GC64_VERSIONS: [&str; 6] = [
    "210.0.0", "210.1.0", "210.4.8", "210.5.0", "210.6.0", NEWEST,
];

/// The program `luajit` of a release of `luajit-src`, with symbols.
pub fn luajit_src(version: &str) -> Obtained {
    build(&format!("luajit-src {version}"), version, "-g")
}

/// The newest release with 32-bit references, which nothing of ours can read.
pub fn luajit_src_compact() -> Obtained {
    let name = format!("luajit-src {NEWEST} without GC64");
    build(&name, NEWEST, "-g -DLUAJIT_DISABLE_GC64")
}

/// A release with the option for Lua 5.2 compatibility, which OpenResty's own packages are built
/// with. It adds library functions and changes their numbers.
pub fn luajit_src_lua52(version: &str) -> Obtained {
    let name = format!("luajit-src {version} with Lua 5.2 compatibility");
    build(&name, version, "-g -DLUAJIT_ENABLE_LUA52COMPAT")
}

fn build(name: &str, version: &str, debug_flags: &str) -> Obtained {
    let directory = cache::directory(name, |directory| {
        write_project(directory, version).map_err(|error| error.to_string())?;
        compile(directory, debug_flags)?;
        source_directory(directory).map(|_| ())
    })?;
    let source = source_directory(&directory).map_err(|reason| Unavailable {
        name: name.to_owned(),
        reason,
    })?;
    let program = source.join("luajit");
    let mut lua_path = source.clone().into_os_string();
    lua_path.push("/?.lua");
    Ok(Build {
        name: name.to_owned(),
        fork: if is_openresty(version) {
            Fork::OpenResty
        } else {
            Fork::Mainline
        },
        library_path: program.clone(),
        has_symbols: true,
        vmdef: Some(source.join("jit/vmdef.lua")),
        program,
        arguments: Vec::new(),
        environment: vec![("LUA_PATH", lua_path)],
    })
}

fn is_openresty(version: &str) -> bool {
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok());
    minor.is_some_and(|minor: u32| (1..5).contains(&minor))
}

/// A workspace of its own: two releases of one crate cannot stand in one lock file.
fn write_project(directory: &Path, version: &str) -> std::io::Result<()> {
    fs::create_dir_all(directory.join("src"))?;
    fs::write(directory.join("src/lib.rs"), "")?;
    fs::write(
        directory.join("Cargo.toml"),
        format!(
            "[package]\nname = \"luajit\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
             [build-dependencies]\nluajit-src = \"={version}\"\n[workspace]\n"
        ),
    )?;
    fs::write(
        directory.join("build.rs"),
        r#"fn main() {
    luajit_src::Build::new().build();
    std::fs::write("out-dir.txt", std::env::var("OUT_DIR").unwrap()).unwrap();
}
"#,
    )
}

/// Where LuaJIT's own build left its program and modules: releases differ in the folder.
fn source_directory(directory: &Path) -> Result<PathBuf, String> {
    let out =
        fs::read_to_string(directory.join("out-dir.txt")).map_err(|error| error.to_string())?;
    let folders = ["luajit-build/src", "luajit-build/build/src"];
    let mut folders = folders.iter().map(|folder| Path::new(&out).join(folder));
    folders
        .find(|folder| folder.join("luajit").exists())
        .ok_or_else(|| format!("the build left no program in {out}"))
}

fn compile(directory: &Path, debug_flags: &str) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // CCDEBUG and TARGET_STRIP are variables of LuaJIT's own build; the latter names the program
    // `true` so that the result keeps its symbols. A release build
    // of the project keeps `luajit-src` from adding the VM's assertions.
    cache::run(
        Command::new(cargo)
            .current_dir(directory)
            .env("CCDEBUG", debug_flags)
            .env("TARGET_STRIP", "true")
            .env("CARGO_TARGET_DIR", directory.join("target"))
            .args(["build", "--release", "--quiet"]),
    )
}
