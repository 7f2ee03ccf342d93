//! The private directory of a run, and the files in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::LabError;
use super::catalog::Lab;
use crate::sys;

/// Makes a directory that only this user can enter, below `parent` or, without one, below the usual
/// place for temporary files; for a lab that needs a disk, below the first usual place on one.
pub(super) fn create(lab: &Lab, parent: Option<&Path>) -> Result<TempDir, LabError> {
    let candidates = match parent {
        Some(parent) => vec![parent.to_owned()],
        None => usual_parents(lab.needs_disk),
    };
    let mut in_memory = Vec::new();
    for candidate in &candidates {
        let absolute = std::path::absolute(candidate).map_err(|source| LabError::Directory {
            action: "resolve",
            path: candidate.clone(),
            source,
        })?;
        if lab.needs_disk && sys::is_in_memory(&absolute).unwrap_or(false) {
            in_memory.push(absolute.display().to_string());
            continue;
        }
        check_name(&absolute)?;
        return tempfile::Builder::new()
            .prefix(&format!("throughline-{}-", lab.info.name))
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&absolute)
            .map_err(|source| LabError::Directory {
                action: "make a directory in",
                path: absolute,
                source,
            });
    }
    Err(LabError::DirectoryInMemory {
        tried: in_memory.join(", "),
    })
}

fn usual_parents(needs_disk: bool) -> Vec<PathBuf> {
    let mut parents = vec![std::env::temp_dir()];
    if needs_disk {
        parents.push(PathBuf::from("/var/tmp"));
        parents.extend(std::env::current_dir());
    }
    parents
}

/// The path goes into nginx.conf and into Lua strings, so it may hold only what means itself there.
fn check_name(path: &Path) -> Result<(), LabError> {
    let plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@'))
    };
    if path.to_str().is_some_and(plain) {
        Ok(())
    } else {
        Err(LabError::DirectoryName {
            path: path.to_owned(),
        })
    }
}

/// Writes the Lua files of `lab` below `directory`.
pub(super) fn write_files(lab: &Lab, directory: &Path) -> Result<(), LabError> {
    for (path, content) in lab.files {
        write(&directory.join(path), content)?;
    }
    Ok(())
}

pub(super) fn write(path: &Path, content: &str) -> Result<(), LabError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|source| LabError::Directory {
            action: "make",
            path: parent.to_owned(),
            source,
        })?;
    }
    fs::write(path, content).map_err(|source| LabError::Directory {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Fills in the `{{name}}` of a configuration. A name without a value stays as it is, which nginx
/// refuses; a test holds that no lab has one.
pub(super) fn render(template: &str, values: &BTreeMap<&str, String>) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_goes_away() {
        let lab = super::super::catalog::find("global-rules").unwrap();
        let directory = create(lab, None).unwrap();
        let path = directory.path().to_owned();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        write_files(lab, &path).unwrap();
        assert!(path.join("lua/gateway/plugin.lua").is_file());
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_nginx_would_read_otherwise_is_refused() {
        for path in [
            "/tmp/a b",
            "/tmp/a;b",
            "/tmp/$uri",
            "/tmp/\"",
            "/tmp/{x",
            "/tmp/]]",
        ] {
            assert!(
                matches!(
                    check_name(Path::new(path)),
                    Err(LabError::DirectoryName { .. })
                ),
                "{path}"
            );
        }
        check_name(Path::new("/var/tmp/throughline-1.2_x")).unwrap();
    }

    #[test]
    fn rendering_replaces_every_occurrence() {
        let values = BTreeMap::from([("a", "1".to_owned()), ("b", "2".to_owned())]);
        assert_eq!(render("{{a}} {{b}} {{a}} {a}", &values), "1 2 1 {a}");
    }
}
