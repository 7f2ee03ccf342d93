//! `check` and `lab` on this machine.

mod support;

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::Value;
use support::{
    Running, assert_code, assert_nulls_have_reasons, err, finish, has_program, json, out, recorder,
};

#[test]
fn check_answers_with_conditions_and_an_exit_code_that_follow_from_each_other() {
    let busy = Running::spinning();
    let output = run!(
        "check",
        "--pid",
        busy.pid().to_string(),
        "--for",
        "2s",
        "--json"
    );
    let document = json(&output);
    assert_nulls_have_reasons(&document);
    let code = match document["verdict"].as_str().unwrap() {
        "on_cpu" | "off_cpu" | "both" => 0,
        "not_explainable" => 1,
        other => panic!("{other} is no verdict"),
    };
    assert_code(&output, code);
    let names: Vec<&str> = document["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    for name in [
        "worker_saturated",
        "upstream_headroom",
        "load_generator_headroom",
        "run_queue_wait",
        "error_rate_stable",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert!(document["check_first"].is_array());
}

#[test]
fn check_without_data_is_code_3() {
    let brief = Running::start(std::process::Command::new("sleep").arg("0.5"));
    let output = run!("check", "--pid", brief.pid().to_string(), "--for", "2s");
    assert_code(&output, 3);
    assert!(out(&output).contains("no data"), "{}", out(&output));
}

#[test]
fn check_refuses_a_peer_that_is_not_there() {
    let busy = Running::spinning();
    let output = run!(
        "check",
        "--pid",
        busy.pid().to_string(),
        "--upstream-pid",
        "4194304"
    );
    assert_code(&output, 2);
    assert!(
        err(&output).contains("--upstream-pid") && err(&output).contains("4194304"),
        "{}",
        err(&output)
    );
}

#[test]
fn an_interrupted_check_answers_for_the_time_it_had() {
    let busy = Running::spinning();
    let checking = recorder(&[
        &"check",
        &"--pid",
        &busy.pid().to_string(),
        &"--for",
        &"50s",
        &"--interval",
        &"100ms",
        &"--json",
    ]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    checking.signal(Signal::INT);
    let document = json(&finish(checking));
    assert!(document["window"]["measured_ns"].as_u64().unwrap() < 40_000_000_000);
}

#[test]
fn labs_are_listed_and_an_unknown_one_is_refused_with_their_names() {
    let document = json(&run!("lab", "list", "--json"));
    let names: Vec<&str> = document["labs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"global-rules"), "{names:?}");
    assert!(out(&run!("lab", "list")).contains("symptom"));
    let output = run!("lab", "run", "no-such-lab");
    assert_code(&output, 2);
    assert!(err(&output).contains("global-rules"), "{}", err(&output));
}

#[test]
fn a_lab_says_who_is_who_and_stops_what_it_started_when_it_is_told_to() {
    if !has_program("nginx") {
        return;
    }
    let mut lab = recorder(&[&"lab", &"run", &"global-rules", &"--for", &"50s", &"--json"]);
    let mut lines = BufReader::new(lab.0.stdout.take().unwrap()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let ready: Value = serde_json::from_str(&first).unwrap_or_else(|_| panic!("{first}"));
    assert_eq!(
        (&ready["ready"], &ready["lab"]),
        (&Value::Bool(true), &Value::from("global-rules"))
    );
    assert!(
        ready["schema"].is_string()
            && ready["url"]
                .as_str()
                .unwrap()
                .starts_with("http://127.0.0.1:")
    );
    let pids: Vec<u64> = ["workers", "upstream", "load"]
        .iter()
        .flat_map(|role| ready["pids"][role].as_array().unwrap())
        .chain([&ready["pids"]["master"]])
        .map(|pid| pid.as_u64().unwrap())
        .collect();
    std::thread::sleep(std::time::Duration::from_secs(2));
    lab.signal(Signal::INT);
    let last = lines.next().and_then(Result::ok).unwrap_or_default();
    let summary: Value = serde_json::from_str(&last).unwrap_or_else(|_| panic!("{last}"));
    assert!(summary["requests"].as_u64().unwrap() > 0, "{summary}");
    assert_nulls_have_reasons(&summary);
    assert_code(&finish(lab), 0);
    for pid in pids {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} goes on running"
        );
    }
}
