//! Everything that is linked into the program may be given away under the project's own terms.

use std::process::Command;

use serde_json::Value;

/// Permissive licences, by SPDX name.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether one of the choices that an SPDX expression offers is permissive in all its parts.
fn permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    if let Some(parts) = split(expression, " OR ") {
        return parts.iter().any(|part| permissive(part));
    }
    if let Some(parts) = split(expression, " AND ") {
        return parts.iter().all(|part| permissive(part));
    }
    match expression
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
    {
        Some(inner) => permissive(inner),
        None => PERMISSIVE.contains(&expression),
    }
}

/// Parts of an expression at an operator outside of parentheses; `None` when there is none.
fn split<'a>(expression: &'a str, operator: &str) -> Option<Vec<&'a str>> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && expression[at..].starts_with(operator) => {
                parts.push(&expression[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[start..]);
    (parts.len() > 1).then_some(parts)
}

#[test]
fn every_library_has_a_permissive_licence() {
    let run = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
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
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let wrong: Vec<String> = packages
        .iter()
        .filter(|package| !permissive(package["license"].as_str().unwrap_or_default()))
        .map(|package| format!("{} {}", package["name"], package["license"]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_expression_is_permissive_when_one_whole_choice_is() {
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "Apache-2.0 / MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "LGPL-2.1-only OR BSD-2-Clause",
    ] {
        assert!(permissive(good), "{good}");
    }
    for bad in [
        "",
        "GPL-2.0",
        "CDDL-1.0",
        "MIT AND GPL-3.0",
        "(GPL-2.0 OR CDDL-1.0) AND MIT",
    ] {
        assert!(!permissive(bad), "{bad}");
    }
}
