//! A small file system of its own, where the machine allows one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs; unmounted when dropped.
pub struct SmallDisk {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl SmallDisk {
    /// A file system of this many KiB, or the reason why there is none.
    pub fn new(kib: u32) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = dir.path().to_owned();
        mount(
            &["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"],
            &path,
        )?;
        Ok(Self { path, _dir: dir })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Allows no more writing.
    pub fn make_read_only(&self) -> Result<(), String> {
        mount(&["-o", "remount,ro"], &self.path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount")
        .args(arguments)
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
