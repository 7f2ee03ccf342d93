//! Independent sources of truth: binutils, compilers, and the files of this machine.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use throughline_symbols::{ModuleSymbols, Options, SharedBytes};

pub struct Tool(pub &'static str);

impl Tool {
    pub fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let output = Command::new(self.0)
            .args(arguments)
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.0));
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    pub fn is_installed(&self) -> bool {
        let installed = Command::new(self.0).arg("--version").output().is_ok();
        if !installed {
            eprintln!("SKIPPED: {}: not installed", self.0);
        }
        installed
    }
}

/// A program compiled for one test, removed afterwards.
pub struct Program {
    directory: tempfile::TempDir,
    path: String,
}

impl Program {
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn source(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    pub fn sibling(&self, name: &str) -> String {
        self.directory
            .path()
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    }
}

/// Compiles `source`; `None`, said aloud, when there is no such compiler.
pub fn compile(
    compiler: &'static str,
    suffix: &str,
    source: &str,
    flags: &[&str],
) -> Option<Program> {
    if !Tool(compiler).is_installed() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source_path = directory.path().join(format!("program.{suffix}"));
    std::fs::write(&source_path, source).unwrap();
    let path = directory
        .path()
        .join("program")
        .to_str()
        .unwrap()
        .to_owned();
    let output = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(&source_path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(Program { directory, path })
}

pub fn bytes(path: impl AsRef<Path>) -> SharedBytes {
    std::fs::read(path).unwrap().into()
}

pub fn parse(path: &str) -> ModuleSymbols {
    ModuleSymbols::parse(bytes(path), &Options::default()).unwrap()
}

/// `0000000000001139 000000000000000b T shown` as (start, size, kind, name).
pub fn nm_line(line: &str) -> Option<(u64, u64, char, &str)> {
    let mut fields = line.split(' ');
    let start = u64::from_str_radix(fields.next()?, 16).ok()?;
    let size = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?.chars().next()?;
    let name = fields.next()?;
    Some((start, size, kind, name.split('@').next().unwrap_or(name)))
}

/// A section's addresses as readelf prints them.
pub fn section(path: &str, name: &str) -> Range<u64> {
    let lines = Tool("readelf").lines(&["-SW", path]);
    let line = lines
        .iter()
        .find(|l| l.contains(&format!(" {name} ")))
        .unwrap();
    let mut fields = line.split(name).nth(1).unwrap().split_whitespace().skip(1);
    let start = u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
    let size = u64::from_str_radix(fields.nth(1).unwrap(), 16).unwrap();
    start..start + size
}

/// Those of some well-known libraries and programs that are installed here.
pub fn elf_files_of_this_machine() -> Vec<String> {
    let library = "/usr/lib/x86_64-linux-gnu";
    [
        format!("{library}/libc.so.6"),
        format!("{library}/libpcre2-8.so.0"),
        format!("{library}/libluajit-5.1.so.2"),
        format!("{library}/libssl.so.3"),
        format!("{library}/libstdc++.so.6"),
        format!("{library}/ld-linux-x86-64.so.2"),
        "/usr/sbin/nginx".to_owned(),
        "/bin/bash".to_owned(),
    ]
    .into_iter()
    .filter(|path| Path::new(path).exists())
    .collect()
}
