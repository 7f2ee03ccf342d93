//! The case file of a recording, from before it is known whether there will be one.

use std::fs;
use std::path::{Path, PathBuf};

use throughline_store::{Case, StoreError};

/// An open case; one that was made for nothing is removed again.
pub struct CaseFile {
    path: PathBuf,
    case: Case,
    made_here: bool,
}

impl CaseFile {
    /// Opens or makes the file, so that a path that cannot be written is refused before anything is recorded.
    ///
    /// # Errors
    /// Those of [`Case::create_or_open`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let made_here = !path.exists();
        let case = Case::create_or_open(path)?;
        Ok(Self {
            path: path.to_owned(),
            case,
            made_here,
        })
    }

    /// The case.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CaseFile {
    fn drop(&mut self) {
        let unused = self.made_here
            && self
                .case
                .captures()
                .is_ok_and(|captures| captures.is_empty());
        if unused {
            // What remains otherwise is an empty case, which the next recording takes.
            let _ = fs::remove_file(&self.path);
        }
    }
}
