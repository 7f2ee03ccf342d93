//! One directory per build under the target directory, filled once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Unavailable;

/// Where builds are kept between runs of the tests.
fn root() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    }
    .join("lua-builds")
}

/// The directory of the build `name`, after `fill` has put everything into it, now or in an earlier
/// run. Tests of several processes may ask at once: one fills, the others wait.
pub(crate) fn directory(
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, Unavailable> {
    let unavailable = |reason: String| Unavailable {
        name: name.to_owned(),
        reason,
    };
    let io = |error: std::io::Error| unavailable(error.to_string());
    let root = root();
    fs::create_dir_all(&root).map_err(io)?;
    let root = root.canonicalize().map_err(io)?;
    let file_name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let directory = root.join(&file_name);
    let lock = File::create(root.join(format!("{file_name}.lock"))).map_err(io)?;
    lock.lock().map_err(io)?;
    let done = directory.join(".filled");
    if !done.exists() {
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(io)?;
        }
        fs::create_dir_all(&directory).map_err(io)?;
        fill(&directory).map_err(unavailable)?;
        File::create(done).map_err(io)?;
    }
    Ok(directory)
}

/// Runs a tool to its end; on failure the answer has the end of what it printed.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut last: Vec<&str> = text.lines().rev().take(3).collect();
    last.reverse();
    Err(format!(
        "{program}: {}: {}",
        output.status,
        last.join(" | ")
    ))
}
