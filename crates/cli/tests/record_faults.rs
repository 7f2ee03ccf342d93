//! What may go wrong around a recording: each gives its message and its code, and nothing that was kept is lost.

mod support;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;
use support::{
    Running, assert_code, directory, err, finish, has_program, json, kept, may_record, out,
    program, recorder, wait_until,
};

#[test]
fn processes_that_are_not_there_are_named_and_code_2() {
    let dir = directory();
    let case = dir.path().join("case.tl");
    for (arguments, reason) in [
        (["--pid", "4194304"], "no process has pid 4194304"),
        (["--name", "no-such-name-at-all"], "no process is named"),
        (["--cgroup", "/no/such/cgroup"], "no cgroup"),
    ] {
        for verb in ["record", "check"] {
            let mut command = support::throughline();
            command.arg(verb).args(arguments);
            if verb == "record" {
                command.arg("-o").arg(&case);
            }
            let output = command.output().unwrap();
            assert_code(&output, 2);
            assert!(err(&output).contains(reason), "{}", err(&output));
            assert!(!case.exists(), "a case without a capture was left behind");
        }
    }
}

#[test]
fn a_path_that_cannot_be_written_is_refused_before_anything_is_recorded() {
    let busy = Running::spinning();
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "-o",
        "/nonexistent/case.tl"
    );
    assert_code(&output, 2);
    assert!(
        err(&output).contains("/nonexistent/case.tl"),
        "{}",
        err(&output)
    );
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "-o",
        "/proc/case.tl"
    );
    assert_code(&output, 2);
}

/// The binary as the user nobody, from a place that this user can read.
fn as_nobody(dir: &Path, arguments: &[&str]) -> Output {
    const NOBODY: u32 = 65534;
    let binary = dir.join("throughline");
    std::fs::copy(env!("CARGO_BIN_EXE_throughline"), &binary).unwrap();
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .current_dir(dir)
        .uid(NOBODY)
        .gid(NOBODY);
    loop {
        match command.output() {
            // Another test's fork holds the copy open for writing until its exec.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            other => return other.unwrap(),
        }
    }
}

#[test]
fn without_permission_the_missing_capabilities_are_named() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let busy = Running::spinning();
    let pid = busy.pid().to_string();
    for arguments in [
        vec!["record", "-o", "case.tl", "--pid", &pid],
        vec!["record", "-o", "case.tl", "--", "true"],
    ] {
        let output = as_nobody(dir.path(), &arguments);
        assert_code(&output, 2);
        let text = err(&output);
        assert!(text.contains("CAP_BPF") && text.contains("root"), "{text}");
        assert!(
            !dir.path().join("case.tl").exists(),
            "a case without a capture was left behind"
        );
    }
}

/// BPF programs of this tool that no process holds.
fn orphaned_programs() -> Vec<Value> {
    let output = Command::new("bpftool")
        .args(["prog", "show", "--json"])
        .output()
        .unwrap();
    let programs: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = |program: &Value| {
        program["name"]
            .as_str()
            .is_some_and(|name| ["on_clock", "on_switch", "on_waking"].contains(&name))
    };
    let orphaned = |program: &Value| program["pids"].as_array().is_none_or(Vec::is_empty);
    programs
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| ours(p) && orphaned(p))
        .cloned()
        .collect()
}

#[test]
fn a_killed_recorder_leaves_a_readable_case_and_nothing_in_the_kernel() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let recording = recorder(&[
        &"record",
        &"--pid",
        &busy.pid().to_string(),
        &"--for",
        &"50s",
        &"-o",
        &case,
    ]);
    wait_until("a hundred samples in the file", || kept(&case) >= 150);
    let before = kept(&case);
    recording.signal(Signal::KILL);
    assert!(finish(recording).status.code().is_none());
    let captures = json(&run!("captures", case, "--json"));
    assert_eq!(captures["captures"][0]["complete"], false);
    assert!(kept(&case) >= before);
    let folded = out(&run!("export", case, "--format", "folded"));
    assert!(folded.contains("calls_spin;spin_here"), "{folded}");
    // The next recording goes into the same file.
    let next = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "1s",
        "-o",
        case,
        "--json"
    );
    assert_code(&next, 0);
    assert_eq!(json(&next)["capture"], 2);
    if has_program("bpftool") {
        // The kernel frees them a little later.
        wait_until("no program is left", || orphaned_programs().is_empty());
    }
}

#[test]
fn a_second_interrupt_ends_at_once_and_what_was_flushed_is_kept() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    // The command ignores the first, so that the recorder waits for it. It runs, so that there is something to keep, and ends.
    let mut recording = Running::start(
        support::throughline()
            .args(["record", "-q", "-o"])
            .arg(&case)
            .args([
                "--",
                "sh",
                "-c",
                "trap '' INT; i=0; while [ $i -lt 40000000 ]; do i=$((i+1)); done",
            ]),
    );
    wait_until("the capture has begun", || {
        let output = run!("captures", case, "--json");
        output.status.success() && json(&output)["captures"][0]["seconds"].as_f64() > Some(0.0)
    });
    recording.signal(Signal::INT);
    wait_until("the capture is complete", || {
        json(&run!("captures", case, "--json"))["captures"][0]["complete"] == true
    });
    let shell = Command::new("pgrep")
        .args(["-P", &recording.pid().to_string()])
        .output()
        .unwrap();
    assert!(
        recording.0.try_wait().unwrap().is_none(),
        "it waits for the command"
    );
    recording.signal(Signal::INT);
    let status = recording.0.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2)
    );
    assert!(kept(&case) > 0);
    // The shell, which ignores the signal and is nobody's child now.
    let end = format!("kill -KILL {}", out(&shell).trim());
    assert!(
        Command::new("sh")
            .args(["-c", &end])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_full_disk_ends_the_recording_with_the_reason_and_keeps_what_was_written() {
    if !may_record() || !has_program("unshare") {
        return;
    }
    let dir = directory();
    let busy = Running::spinning();
    // A small disk of its own, gone with the shell.
    let script = r#"
        mount -t tmpfs -o size=400k small "$1" || exit 77
        "$2" record --pid "$3" --rate 4999 --beyond-safe --for 50s -o "$1/case.tl" -q
        echo "code $?"
        "$2" captures "$1/case.tl" --json
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(env!("CARGO_BIN_EXE_throughline"))
        .arg(busy.pid().to_string())
        .output()
        .unwrap();
    if output.status.code() == Some(77) {
        eprintln!("SKIPPED: mount: a small disk cannot be mounted here");
        return;
    }
    let text = out(&output);
    assert!(text.contains("code 2\n"), "{text}\n{}", err(&output));
    assert!(err(&output).contains("no space left"), "{}", err(&output));
    let document: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let capture = &document["captures"][0];
    assert!(capture["ledger"]["kept"].as_u64().unwrap() > 0, "{capture}");
    assert_eq!(capture["complete"], false);
}

#[test]
fn a_recorder_that_fails_leaves_the_new_case_of_another_alone() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    // A kernel thread has no memory to read: the second recorder fails when it has opened its case and loaded its programs.
    let start = |pid: &str| {
        support::throughline()
            .args(["record", "--for", "1s", "-q", "--pid", pid, "-o"])
            .arg(&case)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut sound = start(&busy.pid().to_string());
    let mut failing = start("2");
    assert_eq!(failing.wait().unwrap().code(), Some(2));
    assert_eq!(sound.wait().unwrap().code(), Some(0));
    assert!(kept(&case) > 0);
}

#[test]
fn a_case_that_is_removed_while_it_is_recorded_into_is_no_success() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let mut recorder = support::throughline();
    recorder
        .args(["record", "--for", "20s", "-q", "--pid"])
        .arg(busy.pid().to_string())
        .arg("-o")
        .arg(&case)
        .stderr(std::process::Stdio::piped());
    let recorder = recorder.spawn().unwrap();
    wait_until("something is kept", || kept(&case) > 0);
    std::fs::remove_file(&case).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert_code(&output, 2);
    assert!(err(&output).contains("was removed"), "{}", err(&output));
}

#[test]
fn a_target_that_runs_another_program_goes_on_being_recorded() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let told = dir.path().join("exec");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; exec {}",
        told.display(),
        program("spin").display()
    );
    let shell = Running::start(Command::new("sh").args(["-c", &script]));
    let recording = recorder(&[
        &"record",
        &"--pid",
        &shell.pid().to_string(),
        &"--for",
        &"50s",
        &"-o",
        &case,
    ]);
    wait_until("samples of the shell", || kept(&case) > 0);
    std::fs::write(&told, "").unwrap();
    wait_until("samples of the program", || {
        let found = run!(
            "export",
            case,
            "--format",
            "folded",
            "--search",
            "spin_here"
        );
        out(&found).contains("main;calls_spin;spin_here")
    });
    recording.signal(Signal::INT);
    assert_code(&finish(recording), 0);
}
