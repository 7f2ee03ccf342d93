//! What Node writes for profilers, read back.

mod independent;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use independent::Tool;
use throughline_symbols::{JitDump, Lookup, PerfMap};

const PROGRAM: &str = "function spin_the_wheel(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }\nlet t = 0;\nfor (let i = 0; i < 3000; i++) t += spin_the_wheel(2000);\nconsole.log(process.pid, t);\n";

/// Runs the program in a directory of its own; its pid, or `None` where there is no node.
fn run(directory: &Path, flags: &[&str]) -> Option<u32> {
    if !Tool("node").is_installed() {
        return None;
    }
    // An at sign in the path, as in node_modules/@scope.
    let folder = directory.join("@scope");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("wheel.js"), PROGRAM).unwrap();
    let output = Command::new("node")
        .current_dir(directory)
        .args(flags)
        .arg("@scope/wheel.js")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split(' ').next().unwrap().parse().unwrap())
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn every_address_of_a_perf_map_has_the_name_of_the_last_line_that_covers_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(pid) = run(directory.path(), &["--perf-basic-prof"]) else {
        return;
    };
    let file = Removed(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    let text = fs::read_to_string(&file.0).unwrap();
    let mut map = PerfMap::new();
    for piece in text.as_bytes().chunks(1000) {
        map.push(piece);
    }
    let entries: Vec<(u64, u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ' ');
            let start = u64::from_str_radix(fields.next()?, 16).ok()?;
            let size = u64::from_str_radix(fields.next()?, 16).ok()?;
            Some((start, start + size, fields.next()?))
        })
        .collect();
    assert!(entries.len() > 100);
    for (start, end, _) in entries.iter().step_by(7) {
        for address in [*start, (start + end) / 2] {
            let last = entries.iter().rev().find(|e| (e.0..e.1).contains(&address));
            let Some((function_start, _, name)) = last else {
                continue;
            };
            match map.lookup(address) {
                Lookup::Named {
                    function,
                    function_start: found,
                    ..
                } => {
                    assert_eq!((function.raw.as_str(), found), (*name, *function_start));
                }
                Lookup::Unnamed { reason, .. } => panic!("{name}: {reason}"),
            }
        }
    }
    let wheel = entries
        .iter()
        .find(|e| e.2.contains("spin_the_wheel"))
        .unwrap();
    let shown = map.lookup(wheel.0).label("?", wheel.0);
    assert!(shown.contains("@scope/wheel.js"), "{shown}");
}

#[test]
fn a_jitdump_of_node_names_the_compiled_function() {
    let directory = tempfile::tempdir().unwrap();
    let Some(pid) = run(directory.path(), &["--perf-prof"]) else {
        return;
    };
    let path = directory.path().join(format!("jit-{pid}.dump"));
    let Ok(bytes) = fs::read(&path) else {
        eprintln!("SKIPPED: node --perf-prof: this build writes no jitdump");
        return;
    };
    let mut dump = JitDump::new();
    for piece in bytes.chunks(1000) {
        dump.push(piece).unwrap();
    }
    // Node 20 writes freed memory into records of lines, which cost their lines only.
    assert!(dump.counts().loads > 100, "{:?}", dump.counts());
    assert!(dump.counts().damaged_records < 50, "{:?}", dump.counts());
    // The name as text in the file, 56 bytes after the record's start; the address 32 bytes in.
    let at = find(&bytes, b"spin_the_wheel");
    let name_start = bytes[..at].iter().rposition(|&b| b < 0x20).unwrap() + 1;
    let record = name_start - 56;
    let address = u64::from_le_bytes(bytes[record + 32..record + 40].try_into().unwrap());
    let time = u64::from_le_bytes(bytes[record + 8..record + 16].try_into().unwrap());
    let shown = dump.lookup(address, Some(time)).label("?", address);
    assert!(shown.contains("spin_the_wheel"), "{shown}");
}

fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|w| w == text).unwrap()
}
