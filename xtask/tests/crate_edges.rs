//! The shape of the workspace: which crate may know which, where `unsafe` and the heavy libraries live.
//!
//! Data flows record -> profile -> analyses -> evidence -> report. Whoever needs a new edge adds it to
//! the table here and its reason to ARCHITECTURE.md, in the commit that uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crate, and the crates of ours that its library or program may use. `units` is open to all.
const EDGES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("wire", &[]),
    ("target", &[]),
    ("symbols", &[]),
    ("host", &[]),
    ("evidence", &[]),
    ("experiment", &[]),
    ("luabuilds", &[]),
    ("profile", &[]),
    ("record", &["profile", "symbols", "target", "wire"]),
    ("store", &["profile"]),
    // Of `host` only the observation that it hands over; a test below holds that analyses read nothing.
    ("analyses", &["evidence", "host", "profile"]),
    ("report", &["evidence", "profile"]),
    (
        "cli",
        &[
            "analyses",
            "evidence",
            "experiment",
            "host",
            "profile",
            "record",
            "report",
            "store",
            "symbols",
            "target",
        ],
    ),
    (
        "xtask",
        &["experiment", "host", "profile", "record", "store"],
    ),
];

/// What tests may use beyond that: builds of LuaJIT, and loads whose answer is known.
const EDGES_OF_TESTS: &[(&str, &[&str])] = &[
    ("target", &["luabuilds"]),
    ("record", &["analyses", "experiment", "luabuilds"]),
    ("cli", &["luabuilds"]),
];

/// No I/O, no clock. Clippy holds their code to it (clippy-pure.toml), the lists here their libraries.
const PURE: &[&str] = &["units", "wire", "profile", "evidence", "analyses", "report"];
const LIBRARIES_OF_PURE_CRATES: &[&str] = &[
    "base64",
    "flate2",
    "regex",
    "rustc-hash",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// Libraries that only the named crates may build on.
const RESERVED_LIBRARIES: &[(&str, &[&str])] = &[
    ("libbpf-rs", &["record"]),
    ("libbpf-cargo", &["record"]),
    ("libbpf-sys", &["record"]),
    ("rusqlite", &["store"]),
    ("clap", &["cli", "xtask"]),
    ("indicatif", &["cli"]),
    ("anyhow", &["cli", "xtask"]),
    ("procfs", &["host"]),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// In the library, the program or its build script.
    Build,
    /// In tests and examples alone.
    Test,
}

struct Member {
    directory: PathBuf,
    dependencies: Vec<(String, Use)>,
}

/// Our crates by their short names.
fn members() -> BTreeMap<String, Member> {
    let run = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let metadata: Value = serde_json::from_slice(&run.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages.iter().map(member).collect()
}

fn member(package: &Value) -> (String, Member) {
    let manifest = Path::new(package["manifest_path"].as_str().expect("manifest path"));
    let dependencies = package["dependencies"].as_array().expect("dependencies");
    let member = Member {
        directory: manifest.parent().expect("a folder").to_owned(),
        dependencies: dependencies
            .iter()
            .map(|dependency| {
                let name = short(dependency["name"].as_str().expect("name"));
                let purpose = if dependency["kind"] == "dev" {
                    Use::Test
                } else {
                    Use::Build
                };
                (name, purpose)
            })
            .collect(),
    };
    (short(package["name"].as_str().expect("name")), member)
}

/// `throughline-store` is `store`, the program `throughline` is `cli`.
fn short(package: &str) -> String {
    match package {
        "throughline" => "cli".to_owned(),
        _ => package.trim_start_matches("throughline-").to_owned(),
    }
}

fn row(table: &[(&str, &'static [&'static str])], name: &str) -> Option<&'static [&'static str]> {
    table
        .iter()
        .find(|(crate_name, _)| *crate_name == name)
        .map(|(_, row)| *row)
}

#[test]
fn each_crate_knows_only_the_crates_that_the_table_allows() {
    let members = members();
    let listed: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let existing: BTreeSet<&str> = members.keys().map(String::as_str).collect();
    assert_eq!(
        listed, existing,
        "the table names exactly the crates there are"
    );
    let mut wrong = Vec::new();
    for (name, member) in &members {
        let allowed = row(EDGES, name).unwrap_or_default();
        let allowed_in_tests = row(EDGES_OF_TESTS, name).unwrap_or_default();
        for (used, purpose) in &member.dependencies {
            let ours = existing.contains(used.as_str()) && used != "units";
            let listed = allowed.contains(&used.as_str())
                || *purpose == Use::Test && allowed_in_tests.contains(&used.as_str());
            if ours && !listed {
                wrong.push(format!("{name} -> {used} ({purpose:?})"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "edges that the table does not allow: {wrong:#?}"
    );
}

/// The crate and all that it builds on, directly or not.
fn reach(from: &'static str) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(row(EDGES, name).unwrap_or_default());
        }
    }
    seen
}

#[test]
fn what_comes_after_the_case_file_cannot_reach_a_live_process() {
    for after in ["profile", "store", "analyses", "evidence", "report"] {
        for live in ["record", "target", "wire"] {
            assert!(!reach(after).contains(live), "{after} reaches {live}");
        }
    }
}

#[test]
fn pure_crates_build_on_libraries_without_io_and_forbid_it_to_themselves() {
    let members = members();
    for name in PURE {
        let member = &members[*name];
        for (used, purpose) in &member.dependencies {
            let known = members.contains_key(used)
                || *purpose == Use::Test
                || LIBRARIES_OF_PURE_CRATES.contains(&used.as_str());
            assert!(
                known,
                "the pure crate {name} builds on {used}: is it free of I/O? then list it"
            );
        }
        let rules = fs::read_to_string(member.directory.join("clippy.toml"))
            .unwrap_or_else(|error| panic!("{name}/clippy.toml: {error}"));
        assert!(
            rules.contains("std::time::Instant::now"),
            "{name}/clippy.toml is not clippy-pure.toml"
        );
    }
}

#[test]
fn heavy_libraries_stay_in_the_crate_that_is_about_them() {
    let mut wrong = Vec::new();
    for (name, member) in members() {
        for (used, purpose) in &member.dependencies {
            let reserved = row(RESERVED_LIBRARIES, used);
            if *purpose == Use::Build
                && reserved.is_some_and(|crates| !crates.contains(&name.as_str()))
            {
                wrong.push(format!("{name} builds on {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The keyword, not the word in a comment, in a text or in another name.
fn has_unsafe_code(line: &str) -> bool {
    const KEYWORD: &str = "unsafe";
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(KEYWORD).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + KEYWORD.len()..].trim_start();
        !before.is_some_and(|character| character.is_alphanumeric() || character == '_')
            && ["{", "fn ", "impl", "trait ", "extern ", "("]
                .iter()
                .any(|form| after.starts_with(form))
    })
}

#[test]
fn unsafe_code_lives_in_modules_called_sys() {
    let mut wrong = Vec::new();
    for member in members().values() {
        for part in ["src", "tests", "examples", "build.rs"] {
            let mut files = Vec::new();
            sources(&member.directory.join(part), &mut files);
            for file in files {
                let sys = file
                    .components()
                    .any(|part| part.as_os_str() == "sys" || part.as_os_str() == "sys.rs");
                let text = fs::read_to_string(&file).expect("source");
                let lines = text
                    .lines()
                    .enumerate()
                    .filter(|(_, line)| !sys && has_unsafe_code(line));
                wrong.extend(lines.map(|(at, _)| format!("{}:{}", file.display(), at + 1)));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "move it to the crate's module sys: {wrong:#?}"
    );
}

#[test]
fn the_search_for_unsafe_code_sees_code_and_not_words() {
    for code in [
        "! { x }",
        "pub ! fn f()",
        "! impl Send for X {}",
        "#[!(no_mangle)]",
    ] {
        assert!(has_unsafe_code(&code.replace('!', "unsafe")), "{code}");
    }
    for word in [
        "// ! { x }",
        "includes('!')",
        "let is_! = 1;",
        "is_!(x)",
        "an ! name",
    ] {
        assert!(!has_unsafe_code(&word.replace('!', "unsafe")), "{word}");
    }
}
