//! Finds separate debug files. The only part of the crate that opens files.
//!
//! Looked for, in this order (GDB's rules, "Debugging Information in Separate Files"):
//!
//! 1. `DIR/.build-id/bb/041e....debug` in every debug directory;
//! 2. the name in `.gnu_debuglink`: beside the module, in `.debug` beside it, and below
//!    every debug directory at the module's path, accepted when its CRC agrees;
//! 3. `CACHE/ID/debuginfo` in debuginfod's cache, filled by whoever used it before. Nothing is
//!    fetched.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::bytes::SharedBytes;
use crate::elf::{self, AlternateLink, BuildId, DebugLink};
use crate::module::DebugFile;
use crate::sys;

/// Where debug files may lie.
#[derive(Debug, Clone)]
pub struct DebugFileFinder {
    root: PathBuf,
    debug_directories: Vec<PathBuf>,
    debuginfod_caches: Vec<PathBuf>,
}

/// What a debug file is recognised by.
#[derive(Debug, Clone, Copy, Default)]
pub struct DebugKey<'a> {
    /// The module's build id.
    pub build_id: Option<&'a BuildId>,
    /// The module's `.gnu_debuglink`.
    pub link: Option<&'a DebugLink>,
    /// Where the module lies, as seen inside the root.
    pub module: Option<&'a Path>,
}

/// A debug file and what led to it.
#[derive(Debug, Clone)]
pub struct FoundDebugFile {
    /// The path inside the root, or in a debuginfod cache.
    pub path: PathBuf,
    /// The bytes, mapped.
    pub file: DebugFile,
}

/// Why there is no debug file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DebugFileError {
    /// The module has neither a build id nor a debug link: no file can be shown to match.
    #[error("the module carries no build id and no .gnu_debuglink")]
    NoKey,
    /// No candidate exists.
    #[error("no debug file in {}", show(tried))]
    NotFound {
        /// Every path that was tried, in order.
        tried: Vec<PathBuf>,
    },
    /// The root itself cannot be opened (the process has gone, or permission).
    #[error("cannot open the root directory {root}: {error}", root = root.display())]
    Root {
        /// The directory.
        root: PathBuf,
        /// The system's message.
        error: String,
    },
}

fn show(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
    shown.join(", ")
}

impl DebugFileFinder {
    /// Looks below `root`: `/` for this machine, `/proc/PID/root` for a container. Symbolic
    /// links cannot lead out of it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            debuginfod_caches: Vec::new(),
        }
    }

    /// Adds a debug directory inside the root.
    #[must_use]
    pub fn with_debug_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.debug_directories.push(directory.into());
        self
    }

    /// Adds a debuginfod cache: a directory of this machine, not of the root. The usual one is
    /// `$DEBUGINFOD_CACHE_PATH`, else `$XDG_CACHE_HOME/debuginfod_client`, else
    /// `~/.cache/debuginfod_client`.
    #[must_use]
    pub fn with_debuginfod_cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.debuginfod_caches.push(directory.into());
        self
    }

    /// The debug file of a module.
    ///
    /// # Errors
    ///
    /// When there is none, with every path that was tried.
    pub fn find(&self, key: DebugKey<'_>) -> Result<FoundDebugFile, DebugFileError> {
        if key.build_id.is_none() && key.link.is_none() {
            return Err(DebugFileError::NoKey);
        }
        let root = File::open(&self.root).map_err(|error| DebugFileError::Root {
            root: self.root.clone(),
            error: error.to_string(),
        })?;
        let mut tried = Vec::new();
        for path in self.by_build_id(key) {
            if let Some(bytes) = matching_build_id(open(&root, &path), key.build_id) {
                return Ok(self.found(&root, path, bytes));
            }
            tried.push(path);
        }
        for path in self.by_link(key) {
            if let Some(bytes) = matching_crc(open(&root, &path), key) {
                return Ok(self.found(&root, path, bytes));
            }
            tried.push(path);
        }
        for path in self.by_debuginfod(key) {
            if let Some(bytes) = matching_build_id(open_here(&path), key.build_id) {
                return Ok(self.found(&root, path, bytes));
            }
            tried.push(path);
        }
        Err(DebugFileError::NotFound { tried })
    }

    fn by_build_id(&self, key: DebugKey<'_>) -> Vec<PathBuf> {
        let Some(build_id) = key.build_id else {
            return Vec::new();
        };
        let relative = build_id.debug_path();
        self.debug_directories
            .iter()
            .map(|directory| directory.join(&relative))
            .collect()
    }

    fn by_link(&self, key: DebugKey<'_>) -> Vec<PathBuf> {
        let (Some(link), Some(beside)) = (key.link, key.module.and_then(Path::parent)) else {
            return Vec::new();
        };
        let below = beside.strip_prefix("/").unwrap_or(beside);
        let mut paths = vec![
            beside.join(&link.file_name),
            beside.join(".debug").join(&link.file_name),
        ];
        for directory in &self.debug_directories {
            paths.push(directory.join(below).join(&link.file_name));
        }
        // The module itself may have the name of its debug file.
        paths.retain(|path| Some(path.as_path()) != key.module);
        paths
    }

    fn by_debuginfod(&self, key: DebugKey<'_>) -> Vec<PathBuf> {
        let Some(build_id) = key.build_id else {
            return Vec::new();
        };
        self.debuginfod_caches
            .iter()
            .map(|cache| cache.join(build_id.to_hex()).join("debuginfo"))
            .collect()
    }

    /// Adds the file that the debug file shares entries with, when it is there.
    fn found(&self, root: &File, path: PathBuf, bytes: SharedBytes) -> FoundDebugFile {
        let alternate = elf::alternate_link(&bytes)
            .ok()
            .flatten()
            .and_then(|link| self.alternate(root, &path, &link));
        FoundDebugFile {
            path,
            file: DebugFile {
                file: bytes,
                alternate,
            },
        }
    }

    fn alternate(&self, root: &File, debug: &Path, link: &AlternateLink) -> Option<SharedBytes> {
        let linked = debug.parent()?.join(&link.path);
        let by_id = link.build_id.debug_path();
        let by_id = self.debug_directories.iter().map(|dir| dir.join(&by_id));
        std::iter::once(linked)
            .chain(by_id)
            .find_map(|path| matching_build_id(open(root, &path), Some(&link.build_id)))
    }
}

impl BuildId {
    /// The debug file's path below a debug directory: `.build-id/bb/041e....debug`.
    pub fn debug_path(&self) -> PathBuf {
        let hex = self.to_hex();
        let (directory, name) = hex.split_at_checked(2).unwrap_or((&hex, ""));
        Path::new(".build-id")
            .join(directory)
            .join(format!("{name}.debug"))
    }
}

/// Opens a regular file for reading as the processes of a container see it: `root` is
/// `/proc/PID/root`, `path` absolute inside it.
///
/// Symbolic links cannot lead out of the root, and a FIFO or a device is refused without being
/// opened: a perf map in a container's `/tmp` is anybody's to replace.
///
/// # Errors
///
/// Those of the system, and `not a regular file`.
pub fn open_file_below(root: &Path, path: &Path) -> io::Result<File> {
    sys::open_in_root(&File::open(root)?, path)
}

fn open(root: &File, path: &Path) -> io::Result<SharedBytes> {
    copied(sys::open_in_root(root, path)?)
}

fn open_here(path: &Path) -> io::Result<SharedBytes> {
    copied(open_file_below(
        Path::new("/"),
        &std::path::absolute(path)?,
    )?)
}

/// The largest debug files of distributions (of a browser) have about this size.
const DEBUG_FILE_BYTES_MAX: u64 = 4 << 30;

fn copied(mut file: File) -> io::Result<SharedBytes> {
    SharedBytes::copy_of(&mut file, DEBUG_FILE_BYTES_MAX)
}

fn matching_build_id(
    bytes: io::Result<SharedBytes>,
    expected: Option<&BuildId>,
) -> Option<SharedBytes> {
    let bytes = bytes.ok()?;
    let found = elf::build_id(&bytes).ok()??;
    (Some(&found) == expected).then_some(bytes)
}

/// A file reached by a debug link: the build id decides when both have one, else the CRC does.
fn matching_crc(bytes: io::Result<SharedBytes>, key: DebugKey<'_>) -> Option<SharedBytes> {
    let bytes = bytes.ok()?;
    let found = elf::build_id(&bytes).ok()?;
    let matches = match (found.as_ref(), key.build_id) {
        (Some(found), Some(expected)) => found == expected,
        _ => key.link.is_some_and(|link| crc32(&bytes) == link.crc32),
    };
    matches.then_some(bytes)
}

/// CRC-32 of ISO 3309, as in zlib and `.gnu_debuglink`.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        // The check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn without_a_key_nothing_is_opened() {
        let finder = DebugFileFinder::new("/nonexistent");
        let error = finder.find(DebugKey::default()).unwrap_err();
        assert_eq!(error, DebugFileError::NoKey);
    }
}
