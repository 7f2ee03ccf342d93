//! The program that is measured: built as it is shipped.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Builds the release binary and returns its path, as cargo tells it.
pub fn release() -> Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "throughline"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the release build failed");
    }
    String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo did not name the executable it built")
}
