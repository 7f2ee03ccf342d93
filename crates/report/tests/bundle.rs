//! The committed front end is what its sources make.

#![allow(clippy::disallowed_methods, reason = "only the library is pure")]

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn the_bundle_was_built_from_the_sources_beside_it() {
    let mut names: Vec<String> = [
        "build.mjs",
        "package-lock.json",
        "package.json",
        "tsconfig.json",
    ]
    .map(String::from)
    .into();
    for entry in std::fs::read_dir(web().join("src")).expect("web/src") {
        names.push(format!(
            "src/{}",
            entry.expect("entry").file_name().to_string_lossy()
        ));
    }
    names.sort();
    let list: String = names
        .iter()
        .map(|name| {
            format!(
                "{name} {}\n",
                hex(&std::fs::read(web().join(name)).expect("source"))
            )
        })
        .collect();
    let first_line = format!("/* sources sha256 {} */\n", hex(list.as_bytes()));
    for file in ["flame.js", "flame.css"] {
        let built = std::fs::read_to_string(web().join("dist").join(file)).expect("bundle");
        assert!(
            built.starts_with(&first_line),
            "web/dist/{file} is stale: run `npm run build` in web/"
        );
    }
}

#[test]
fn building_again_gives_the_committed_bytes_and_the_types_hold() {
    if !web().join("node_modules/.bin/esbuild").exists() {
        eprintln!("SKIPPED: esbuild: web/node_modules is not installed (npm ci)");
        return;
    }
    let out = tempfile::tempdir().expect("folder");
    let run = |program: &str, arguments: &[&str]| {
        let run = Command::new(program)
            .args(arguments)
            .current_dir(web())
            .output()
            .expect("runs");
        assert!(
            run.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&run.stdout)
        );
    };
    run("npm", &["run", "check"]);
    run("node", &["build.mjs", &out.path().to_string_lossy()]);
    for file in ["flame.js", "flame.css"] {
        let [committed, built] = [web().join("dist"), out.path().to_owned()]
            .map(|folder| std::fs::read(folder.join(file)).expect("bundle"));
        assert!(
            committed == built,
            "web/dist/{file} differs from a new build"
        );
    }
}
