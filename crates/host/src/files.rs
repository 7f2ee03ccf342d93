//! Bounded reading of /proc and /sys, below roots that tests replace with folders of fixtures.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::absence::{Absence, Reading};

/// No file we read is larger on a sane machine: /proc/net/tcp has 150 bytes a socket, so this holds
/// 400,000 sockets.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// Where /proc and /sys are.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
}

impl Roots {
    pub(crate) fn live() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
        }
    }

    /// Reads a file under /proc, whole.
    pub(crate) fn proc_file(&self, relative: &str) -> Reading<Vec<u8>> {
        read(&self.proc.join(relative))
    }

    /// Reads a file under /sys, whole.
    pub(crate) fn sys_file(&self, relative: &str) -> Reading<Vec<u8>> {
        read(&self.sys.join(relative))
    }

    /// Reads one value under /sys, trimmed and safe to print.
    pub(crate) fn sys_value(&self, relative: &str) -> Reading<String> {
        Ok(crate::printable(self.sys_file(relative)?.trim_ascii()))
    }

    /// The numeric names in a folder under /proc: pids of /proc itself, tids of a task folder.
    pub(crate) fn numbers(&self, relative: &str) -> Reading<Vec<u32>> {
        let path = self.proc.join(relative);
        let shown = path.display().to_string();
        let entries = std::fs::read_dir(&path).map_err(|error| Absence::from_io(&shown, &error))?;
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect())
    }
}

/// Reads a file whole, up to a bound. /proc files report a size of zero, so the size is never asked for.
pub(crate) fn read(path: &Path) -> Reading<Vec<u8>> {
    let shown = path.display().to_string();
    let file = File::open(path).map_err(|error| Absence::from_io(&shown, &error))?;
    let mut bytes = Vec::with_capacity(2048);
    file.take(LARGEST_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Absence::from_io(&shown, &error))?;
    if bytes.len() as u64 == LARGEST_FILE_BYTES {
        return Err(Absence::TooCostly(format!(
            "{shown} has more than {LARGEST_FILE_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

/// The lines of a file.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'\n')
}

/// The fields of a line, separated by any run of blanks.
pub(crate) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
}

/// A decimal number, whole field or nothing.
pub(crate) fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// A hexadecimal number, whole field or nothing.
pub(crate) fn hex(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok()
}
