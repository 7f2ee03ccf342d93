//! Recording real programs.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use support::{
    Running, assert_balances, assert_code, assert_nulls_have_reasons, directory, err, finish, json,
    kept, may_record, out, program, recorder, wait_until,
};

/// What holds for the document of `record --json`, whatever was recorded.
fn assert_record_document(document: &Value) {
    assert_nulls_have_reasons(document);
    for ledger in ["ledger", "ledger_on_cpu", "ledger_off_cpu"] {
        assert_balances(&document[ledger]);
    }
    assert!(
        document["schema"]
            .as_str()
            .is_some_and(|schema| schema.starts_with("record/"))
    );
    assert!(document["tool"].is_string() && document["requests"].is_null());
    let context = &document["lua_context"];
    let without: u64 = context["without"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(context["samples"], document["ledger"]["kept"]);
    assert_eq!(
        context["samples"].as_u64().unwrap(),
        context["with"].as_u64().unwrap() + without
    );
    for target in document["targets"].as_array().unwrap() {
        assert!(target["pid"].is_u64() && target["comm"].is_string());
        assert!(target["lua_vm"]["found"].is_boolean());
    }
}

#[test]
fn a_busy_program_is_recorded_with_as_many_samples_as_its_cpu_time_gives() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "5s",
        "-o",
        case,
        "--json"
    );
    assert_code(&output, 0);
    let document = json(&output);
    assert_record_document(&document);
    assert_eq!(document["capture"], 1);
    assert_eq!(document["kind"], serde_json::json!(["on_cpu", "off_cpu"]));
    assert_eq!(document["rate_hz"], 99);
    assert_eq!(document["ended_by"], "time");
    assert!(document["seconds"].as_f64().unwrap() >= 5.0);
    assert_eq!(document["targets"][0]["comm"], "spin");
    let expected = document["expected_on_cpu_samples"].as_f64().unwrap();
    let taken = document["ledger_on_cpu"]["taken"].as_f64().unwrap();
    // 2 % is the promise; a few samples more for the moments at which the two are read.
    assert!(
        (taken - expected).abs() <= expected * 0.02 + 5.0,
        "{taken} taken, {expected} expected"
    );
    assert!(document["bpf"]["ns_per_sample_mean"].as_f64().unwrap() > 0.0);
    assert_eq!(document["stacks"]["incomplete"], 0);

    let folded = out(&run!(
        "export",
        case,
        "--format",
        "folded",
        "--search",
        "spin_here"
    ));
    assert!(folded.contains("main;calls_spin;spin_here"), "{folded}");
    let next = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "1s",
        "-o",
        case,
        "--on-cpu"
    );
    assert_code(&next, 0);
    let text = out(&next);
    assert!(text.starts_with("capture 2 in "), "{text}");
    assert!(text.contains("throughline rank"), "{text}");
    assert!(!text.contains("off-CPU"), "{text}");
}

#[test]
fn a_sleeping_program_is_seen_off_the_cpu_for_as_long_as_it_sleeps() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    // Sleeps 100 ms at a time.
    let script = "while :; do sleep 0.1; done";
    let sleeper = Running::start(std::process::Command::new("sh").args(["-c", script]));
    let output = run!(
        "record",
        "--pid",
        sleeper.pid().to_string(),
        "--off-cpu",
        "--for",
        "4s",
        "-o",
        case,
        "--json"
    );
    assert_code(&output, 0);
    let document = json(&output);
    assert_record_document(&document);
    assert_eq!(document["kind"], serde_json::json!(["off_cpu"]));
    assert_eq!(document["lua_context_on_cpu"]["samples"], 0);
    let folded = out(&run!("export", case, "--format", "folded", "--off-cpu"));
    let waited: u64 = folded
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    // The shell waits for its child all the time, and each child sleeps.
    assert!(waited > 3_000_000_000, "{waited} ns waited: {folded}");
}

#[test]
fn a_name_finds_all_its_processes_and_only_those() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    // A name of its own: other tests spin too.
    let own = dir.path().join("tl-named");
    std::fs::hard_link(program("spin"), &own).unwrap();
    let pair = [&own, &own].map(|path| Running::start(&mut std::process::Command::new(path)));
    let document = json(&run!(
        "record", "--name", "tl-named", "--for", "1s", "-o", case, "--json"
    ));
    assert_record_document(&document);
    let mut pids: Vec<u64> = pair.iter().map(|running| running.pid().into()).collect();
    pids.sort_unstable();
    let found: Vec<u64> = document["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(found, pids);
}

#[test]
fn a_signal_ends_a_recording_early_and_keeps_all_of_it() {
    if !may_record() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
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
            &"--json",
        ]);
        wait_until("samples in the file", || kept(&case) > 0);
        recording.signal(signal);
        let output = finish(recording);
        assert_code(&output, 0);
        let document = json(&output);
        assert_record_document(&document);
        assert_eq!(document["ended_by"], "signal");
        assert_eq!(document["ledger"]["kept"].as_u64().unwrap(), kept(&case));
        let captures = json(&run!("captures", case, "--json"));
        assert_eq!(captures["captures"][0]["complete"], true);
    }
}

#[test]
fn a_target_that_ends_ends_the_recording() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let told = dir.path().join("end");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", told.display());
    let target = Running::start(std::process::Command::new("sh").args(["-c", &script]));
    let recording = recorder(&[
        &"record",
        &"--pid",
        &target.pid().to_string(),
        &"--for",
        &"50s",
        &"-o",
        &case,
        &"--json",
    ]);
    wait_until("samples in the file", || kept(&case) > 0);
    std::fs::write(&told, "").unwrap();
    let output = finish(recording);
    assert_code(&output, 0);
    let document = json(&output);
    assert_record_document(&document);
    assert_eq!(document["ended_by"], "targets_ended");
}

#[test]
fn two_recorders_of_one_target_into_one_case_do_not_disturb_each_other() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let pid = busy.pid().to_string();
    let both = [(); 2].map(|()| {
        recorder(&[
            &"record", &"--pid", &pid, &"--for", &"3s", &"-o", &case, &"--json",
        ])
    });
    let mut captures = Vec::new();
    for recording in both {
        let output = finish(recording);
        assert_code(&output, 0);
        let document = json(&output);
        assert_record_document(&document);
        assert!(document["ledger_on_cpu"]["kept"].as_u64().unwrap() > 0);
        captures.push(document["capture"].as_u64().unwrap());
    }
    captures.sort_unstable();
    assert_eq!(captures, [1, 2]);
}

#[test]
fn insisting_on_an_unsafe_rate_prints_what_it_costs() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--rate",
        "997",
        "--beyond-safe",
        "--for",
        "1s",
        "-o",
        case
    );
    assert_code(&output, 0);
    let text = out(&output);
    assert!(
        text.contains("at 997 Hz") && text.contains("% of a core for each thread that always runs"),
        "{text}"
    );
}

#[test]
fn a_rate_in_lockstep_with_round_timers_is_warned_of() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--rate",
        "100",
        "--for",
        "1s",
        "-o",
        case
    );
    assert_code(&output, 0);
    assert!(out(&output).contains("lockstep"), "{}", out(&output));
}

#[test]
fn quiet_is_one_line_and_a_pipe_gets_no_progress() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let output = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "1s",
        "-o",
        case,
        "-q"
    );
    assert_code(&output, 0);
    assert_eq!(out(&output).lines().count(), 1, "{}", out(&output));
    assert_eq!(err(&output), "");
    let loud = run!(
        "record",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "1s",
        "-o",
        case
    );
    assert!(
        !err(&loud).contains('\r') && !err(&loud).contains('\x1b'),
        "{:?}",
        err(&loud)
    );
}

/// "flame graph useless, without any valid stack": the samples of such a program must not be shown as if they said who calls
/// whom.
#[test]
fn stacks_that_cannot_be_unwound_are_told_of_with_their_rate_and_the_likely_reason() {
    if !may_record() {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let blind = Running::start(&mut std::process::Command::new(program("blind")));
    let output = run!(
        "record",
        "--pid",
        blind.pid().to_string(),
        "--on-cpu",
        "--for",
        "2s",
        "-o",
        case
    );
    assert_code(&output, 3);
    let text = out(&output);
    assert!(
        text.contains("NO STACK IS WHOLE") && text.contains("100.0 %"),
        "{text}"
    );
    assert!(
        text.contains("blind: built without unwinding tables"),
        "{text}"
    );
    assert!(kept(&case) > 0, "what was taken is kept");
}

/// A control group of the unified hierarchy that goes away with the test.
struct ControlGroup(std::path::PathBuf);

impl ControlGroup {
    fn make() -> Option<Self> {
        let name = format!("throughline-test-{}", std::process::id());
        ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .iter()
            .find_map(|mount| {
                let path = std::path::Path::new(mount);
                let unified = path.join("cgroup.controllers").exists();
                let own = path.join(&name);
                (unified && std::fs::create_dir(&own).is_ok()).then_some(Self(own))
            })
    }

    fn enter(&self, running: &Running) {
        let pid = running.pid().to_string();
        std::fs::write(self.0.join("cgroup.procs"), pid).expect("it may enter");
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Empty only once its processes are reaped.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_that_enters_the_cgroup_later_is_recorded_from_then_on() {
    if !may_record() {
        return;
    }
    let Some(group) = ControlGroup::make() else {
        eprintln!("SKIPPED: cgroup2: no control group can be made here");
        return;
    };
    let dir = directory();
    let case = dir.path().join("case.tl");
    let first = Running::spinning();
    group.enter(&first);
    let recording = recorder(&[
        &"record",
        &"--cgroup",
        &group.0,
        &"--for",
        &"50s",
        &"-o",
        &case,
        &"--json",
    ]);
    wait_until("samples of the first", || kept(&case) > 0);
    let second = Running::spinning();
    group.enter(&second);
    wait_until("the second in the file", || {
        let captures = json(&run!("captures", case, "--json"));
        let targets = captures["captures"][0]["targets"].as_array().cloned();
        targets.is_some_and(|targets| targets.iter().any(|t| t["pid"] == second.pid()))
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    recording.signal(Signal::INT);
    let output = finish(recording);
    assert_code(&output, 0);
    let document = json(&output);
    assert_record_document(&document);
    let joined = |running: &Running| {
        let targets = document["targets"].as_array().unwrap();
        let target = targets.iter().find(|t| t["pid"] == running.pid());
        target.expect("a target")["joined_ns"].as_u64().unwrap()
    };
    assert!(joined(&second) > joined(&first));
    let of_second = json(&run!(
        "rank",
        case,
        "--off-cpu",
        "--pid",
        second.pid().to_string(),
        "--json"
    ));
    assert_eq!(of_second["pid"], second.pid());
}

#[test]
fn a_terminal_sees_how_far_it_is_and_what_is_kept() {
    if !may_record() || !support::has_program("script") {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    let busy = Running::spinning();
    let command = format!(
        "{} record --pid {} --for 3s -o {}",
        env!("CARGO_BIN_EXE_throughline"),
        busy.pid(),
        case.display()
    );
    let output = std::process::Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert_code(&output, 0);
    let text = out(&output);
    assert!(
        text.contains("s left, ") && text.contains(" kept, 0 lost, 1 processes"),
        "{text:?}"
    );
    assert!(!text.contains("\x1b[3"), "no colours: {text:?}");
}
