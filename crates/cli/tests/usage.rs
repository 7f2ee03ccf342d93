//! What a user sees who asks, mistypes, or pipes.

mod support;

use std::io::Read;
use std::process::Stdio;

use support::{assert_code, directory, err, out, throughline};

const VERBS: [&[&str]; 9] = [
    &[],
    &["check"],
    &["record"],
    &["captures"],
    &["rank"],
    &["flame"],
    &["export"],
    &["lab", "list"],
    &["lab", "run"],
];

#[test]
fn every_verb_explains_itself_with_an_example() {
    for verb in VERBS {
        let output = throughline().args(verb).arg("--help").output().unwrap();
        assert_code(&output, 0);
        let text = out(&output);
        let words = ["throughline", verb.first().copied().unwrap_or("record")].join(" ");
        assert!(text.contains(&format!("  {words}")), "{verb:?}: {text}");
        assert!(!text.contains('\x1b'), "{verb:?} colours a pipe");
    }
}

#[test]
fn the_hidden_verbs_are_not_shown() {
    let text = out(&run!("--help"));
    assert!(!text.contains("run-when-recorded"), "{text}");
    let text = out(&run!("lab", "--help"));
    assert!(!text.contains("load generator"), "{text}");
}

#[test]
fn a_wrong_word_is_refused_with_code_2_and_what_to_do() {
    for (arguments, hint) in [
        (&["recrod"][..], "record"),
        (&["record"], "--pid"),
        (
            &["record", "--pid", "1", "--name", "nginx"],
            "cannot be used with",
        ),
        (
            &["record", "--pid", "1", "--", "true"],
            "cannot be used with",
        ),
        (&["record", "--pid", "x"], "--pid"),
        (&["record", "--pid", "1", "--for", "30"], "30s"),
        (&["check"], "--pid"),
        (&["export"], "--format"),
        (&["lab", "run", "global-rules", "--load", "open"], "closed"),
    ] {
        let output = throughline().args(arguments).output().unwrap();
        assert_code(&output, 2);
        assert!(
            err(&output).contains(hint),
            "{arguments:?}: {}",
            err(&output)
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn rates_and_lengths_beyond_what_is_safe_must_be_insisted_on() {
    for (options, limit) in [(["--rate", "499"], "199 Hz"), (["--for", "61s"], "60 s")] {
        let output = throughline()
            .args(["record", "--pid", "1", "-o", "/nonexistent/x.tl"])
            .args(options)
            .output()
            .unwrap();
        assert_code(&output, 2);
        let text = err(&output);
        assert!(
            text.contains(limit) && text.contains("--beyond-safe"),
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_closes_the_pipe_has_had_enough_and_is_no_failure() {
    let dir = directory();
    let case = support::known_case(dir.path());
    for verb in ["rank", "captures"] {
        let mut child = throughline()
            .arg(verb)
            .arg(&case)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Closed before anything can be written.
        drop(child.stdout.take());
        let status = child.wait().unwrap();
        let mut text = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(status.code(), Some(0), "{verb}: {text}");
        assert!(
            !text.contains("pipe") && !text.contains("panic"),
            "{verb}: {text}"
        );
    }
}

#[test]
fn no_color_and_a_terminal_that_wants_colour_are_both_served_without_any() {
    let dir = directory();
    let case = support::known_case(dir.path());
    for (variable, value) in [("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")] {
        let output = throughline()
            .arg("rank")
            .arg(&case)
            .env(variable, value)
            .output()
            .unwrap();
        assert!(!out(&output).contains('\x1b') && !err(&output).contains('\x1b'));
    }
    let refusal = throughline()
        .arg("recrod")
        .env("NO_COLOR", "1")
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    assert!(!err(&refusal).contains('\x1b'), "{}", err(&refusal));
}
