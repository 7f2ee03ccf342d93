//! The case file of a recording, from before it is known whether there will be one.

use std::cell::OnceCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Access, access};
use throughline_profile::Capture;
use throughline_store::{CaptureWriter, Case, StoreError};

/// A case that is recorded into. A new one is made when a capture begins in it: a file that was made before would have to be
/// removed when nothing can be recorded, and another recorder may be at work in it by then.
pub struct CaseFile {
    path: PathBuf,
    case: OnceCell<Case>,
}

impl CaseFile {
    /// Opens the file when there is one, so that a path that cannot be written is refused before anything is recorded.
    ///
    /// # Errors
    /// Those of [`Case::create_or_open`], and that of a folder which takes no file.
    pub fn open(path: &Path) -> Result<Self> {
        let case = OnceCell::new();
        match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                folder_takes_files(path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
            }
            _ => {
                let _ = case.set(Case::create_or_open(path)?);
            }
        }
        Ok(Self {
            path: path.to_owned(),
            case,
        })
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// Those of [`Case::create_or_open`] and [`Case::begin_capture`].
    pub fn begin_capture(&self, facts: &Capture) -> Result<CaptureWriter, StoreError> {
        let case = match self.case.get() {
            Some(case) => case,
            None => {
                let made = Case::create_or_open(&self.path)?;
                self.case.get_or_init(|| made)
            }
        };
        case.begin_capture(facts)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn folder_takes_files(path: &Path) -> rustix::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
}
