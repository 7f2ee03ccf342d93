//! Naming an address never starts a program: other tools forked addr2line for hours (flamegraph-rs 74, 199).

use std::fs;
use std::path::{Path, PathBuf};

/// Crates between a sample and its page. Tests may start programs; their sources may not.
const QUIET: [&str; 9] = [
    "units", "wire", "profile", "target", "symbols", "record", "analyses", "report", "store",
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn no_crate_that_names_addresses_starts_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    for name in QUIET {
        sources(&crates.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100, "the sources were found: {}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for call in [
            "process::Command",
            "Command::new",
            "libc::fork",
            "posix_spawn",
            "libc::exec",
        ] {
            assert!(!text.contains(call), "{} has {call}", file.display());
        }
    }
}
