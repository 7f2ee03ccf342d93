//! `record -- COMMAND`: a program from its first instruction to its end.

mod support;

use std::process::Stdio;

use rustix::process::Signal;
use support::{
    Running, assert_code, directory, err, finish, json, kept, may_record, out, program,
    throughline, wait_until,
};

#[test]
fn a_command_is_recorded_from_start_to_end_and_its_streams_and_status_are_its_own() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let output = run!("record", "-o", case, "--", program("spin"), "60", "7");
    assert_code(&output, 0);
    assert_eq!(out(&output), "spun\n", "standard output is the command's");
    assert!(
        err(&output).contains("exit status of the command 7"),
        "{}",
        err(&output)
    );
    let captures = json(&run!("captures", case, "--json"));
    assert_eq!(captures["captures"][0]["targets"][0]["comm"], "spin");
    let folded = out(&run!(
        "export",
        case,
        "--format",
        "folded",
        "--search",
        "spin_here"
    ));
    assert!(folded.contains("main;calls_spin;spin_here"), "{folded}");
    let all = out(&run!("export", case, "--format", "folded"));
    assert!(
        !all.contains("throughline"),
        "nothing of the recorder is in it: {all}"
    );
}

#[test]
fn the_document_of_a_command_is_the_last_line_and_tells_how_it_ended() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let output = run!(
        "record",
        "-o",
        case,
        "--json",
        "--",
        "sh",
        "-c",
        "echo mine; kill -TERM $$"
    );
    assert_code(&output, 0);
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("mine", 2));
    let document: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(document["ended_by"], "command_ended");
    assert_eq!(document["command"]["signal"], 15);
    support::assert_nulls_have_reasons(&document);
}

#[test]
fn a_command_gets_no_descriptor_of_the_recorder() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let list = "ls /proc/self/fd";
    let plain = std::process::Command::new("sh")
        .args(["-c", list])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let recorded = throughline()
        .args(["record", "-q", "-o"])
        .arg(&case)
        .args(["--", "sh", "-c", list])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(out(&recorded), out(&plain));
}

#[test]
fn a_command_that_is_not_there_is_refused_before_anything_is_made() {
    let dir = directory();
    let case = dir.path().join("case.tl");
    for (command, reason) in [
        ("no-such-program-anywhere", "in PATH"),
        ("/etc/passwd", "not an executable file"),
    ] {
        let output = run!("record", "-o", case, "--", command);
        assert_code(&output, 2);
        assert!(err(&output).contains(reason), "{}", err(&output));
        assert!(!case.exists());
    }
}

#[test]
fn a_signal_to_the_recorder_reaches_the_command_and_all_is_kept() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let recording = Running::start(
        throughline()
            .args(["record", "--json", "-o"])
            .arg(&case)
            .arg("--")
            .arg(program("spin"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    wait_until("samples in the file", || kept(&case) > 0);
    recording.signal(Signal::TERM);
    let output = finish(recording);
    assert_code(&output, 0);
    let document = json(&output);
    assert_eq!(document["ended_by"], "signal");
    assert_eq!(document["command"]["signal"], 15);
    assert!(document["ledger"]["kept"].as_u64().unwrap() > 0);
}

#[test]
fn a_recording_that_ends_by_time_lets_the_command_end_by_itself() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let output = run!(
        "record",
        "-o",
        case,
        "--for",
        "1s",
        "--json",
        "--",
        "sh",
        "-c",
        "sleep 10; exit 5"
    );
    assert_code(&output, 0);
    let document = json(&output);
    assert_eq!(document["ended_by"], "time");
    assert_eq!(document["command"]["exit_code"], 5);
    assert!(document["seconds"].as_f64().unwrap() < 10.0);
}
