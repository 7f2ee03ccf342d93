//! Categories, requests and `path` on the labs: a real nginx with stripped libraries, under load.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::{
    Running, assert_code, assert_nulls_have_reasons, directory, finish, has_program, json, kept,
    may_record, out, recorder, wait_until,
};

/// A lab that is ready, and what it says of itself.
fn lab(name: &str, load: &str, workers: &str) -> (Running, Value) {
    let mut lab = recorder(&[
        &"lab",
        &"run",
        &name,
        &"--for",
        &"50s",
        &"--load",
        &load,
        &"--workers",
        &workers,
        &"--json",
    ]);
    let mut lines = BufReader::new(lab.0.stdout.take().expect("its output is a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    let ready: Value = serde_json::from_str(&first).expect("a document");
    assert_eq!(ready["ready"], true, "{ready}");
    (lab, ready)
}

fn stop(lab: Running) {
    lab.signal(rustix::process::Signal::TERM);
    finish(lab);
}

/// Its workers, as `--pid` takes them.
fn workers(ready: &Value) -> String {
    let workers = ready["pids"]["workers"].as_array().expect("a list");
    let pids: Vec<String> = workers.iter().map(Value::to_string).collect();
    pids.join(",")
}

/// Sends requests one after the other on one connection, and reads each answer to its end.
fn request(address: &str, count: usize) {
    let stream = TcpStream::connect(address).expect("the lab listens");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a time-out");
    let mut writer = stream.try_clone().expect("a second handle");
    let mut reader = BufReader::new(stream);
    for _ in 0..count {
        write!(writer, "GET / HTTP/1.1\r\nHost: lab\r\n\r\n").expect("a request");
        let (mut length, mut line) = (None, String::new());
        loop {
            line.clear();
            reader.read_line(&mut line).expect("a line of the head");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length.expect("the lab tells the length")];
        reader.read_exact(&mut body).expect("the body");
    }
}

#[test]
fn requests_are_counted_to_the_last_one_without_configuration_and_without_a_probe() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let (lab, ready) = lab("global-rules", "none", "1");
    let document = record_337_requests(&ready, &workers(&ready), "--json");
    assert_eq!(document["requests"]["count"], 337, "{document}");
    assert_eq!(document["requests"]["source"], "memory:ngx_stat_requests");
    stop(lab);
}

#[test]
fn one_worker_of_two_is_counted_by_a_probe_and_both_by_nginx() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let (lab, ready) = lab("global-rules", "none", "2");
    let both = workers(&ready);
    let (one, _) = both.split_once(',').expect("two workers");
    let document = record_337_requests(&ready, one, "--json");
    assert_eq!(
        document["requests"]["source"], "uprobe:ngx_http_free_request",
        "{document}"
    );
    let document = record_337_requests(&ready, &both, "--json");
    assert_eq!(document["requests"]["count"], 337, "{document}");
    assert_eq!(document["requests"]["source"], "memory:ngx_stat_requests");
    stop(lab);
}

#[test]
fn requests_that_nobody_asked_for_are_not_counted() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let (lab, ready) = lab("global-rules", "none", "1");
    let document = record_337_requests(&ready, &workers(&ready), "--no-requests");
    assert!(document["requests"].is_null(), "{document}");
    assert_eq!(document["requests_reason"], "not asked for");
    stop(lab);
}

/// Records these processes while the lab gets 337 requests, after some that do not count.
fn record_337_requests(ready: &Value, pids: &str, option: &str) -> Value {
    let url = ready["url"].as_str().expect("an address");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    // Before the recording: these do not count.
    request(address, 3);
    let dir = directory();
    let case = dir.path().join("case.tl");
    let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![
        &"record", &"--pid", &pids, &"--for", &"20s", &"-o", &case, &"--json",
    ];
    if option != "--json" {
        arguments.push(&option);
    }
    let recording = recorder(&arguments);
    wait_until("a capture", || case_has_begun(&case));
    request(address, 250);
    request(address, 87);
    recording.signal(rustix::process::Signal::INT);
    let output = finish(recording);
    assert_code(&output, 0);
    json(&output)
}

/// The capture is made when everything is attached.
fn case_has_begun(case: &Path) -> bool {
    let output = run!("captures", case, "--json");
    output.status.success()
        && json(&output)["captures"]
            .as_array()
            .is_some_and(|c| !c.is_empty())
}

#[test]
fn a_program_that_is_no_nginx_has_a_reason_for_its_missing_requests() {
    if !may_record() {
        return;
    }
    let spinning = Running::spinning();
    let dir = directory();
    let case = dir.path().join("case.tl");
    let output = run!(
        "record",
        "--pid",
        spinning.pid().to_string(),
        "--rate",
        "199",
        "--for",
        "4s",
        "-o",
        case,
        "--json"
    );
    assert_code(&output, 0);
    let document = json(&output);
    assert!(document["requests"].is_null());
    assert!(
        document["requests_reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("no nginx"))
    );
    let rank = json(&run!("rank", case, "--json"));
    assert_nulls_have_reasons(&rank);
    // All of it is the program's own loop.
    let other = &rank["categories"][0];
    assert_eq!(
        (&other["name"], &other["bound"]),
        (&"other".into(), &"exact".into())
    );
    let from = "http://127.0.0.1:9/";
    let output = run!(
        "record",
        "--pid",
        spinning.pid().to_string(),
        "--for",
        "1s",
        "-o",
        case,
        "--json",
        "--requests-from",
        from
    );
    let reason = json(&output)["requests_reason"].to_string();
    assert!(
        reason.contains(from) && reason.contains("cannot be read"),
        "{reason}"
    );
}

/// Records the workers of a lab under load.
fn recorded(name: &str, case: &Path) -> bool {
    let (lab, ready) = lab(name, "closed", "1");
    let output = run!(
        "record",
        "--pid",
        workers(&ready),
        "--on-cpu",
        "--rate",
        "997",
        "--beyond-safe",
        "--for",
        "8s",
        "-o",
        case,
        "--json"
    );
    stop(lab);
    assert_code(&output, 0);
    let enough = kept(case) >= 100;
    if !enough {
        eprintln!("SKIPPED: cpu: the worker got too little of a core for 100 samples");
    }
    enough
}

#[test]
fn categories_sum_to_all_samples_on_every_lab() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let labs = json(&run!("lab", "list", "--json"));
    for lab in labs["labs"].as_array().expect("a list") {
        let name = lab["name"].as_str().expect("a name");
        let dir = directory();
        let case = dir.path().join("case.tl");
        if !recorded(name, &case) {
            continue;
        }
        let rank = json(&run!("rank", case, "--json", "--limit", "0"));
        assert_nulls_have_reasons(&rank);
        let rows = rank["categories"].as_array().expect("rows");
        let sum: u64 = rows
            .iter()
            .map(|row| row["samples"].as_u64().expect("a count"))
            .sum();
        assert_eq!(sum, rank["denominators"]["samples"], "{name}");
        assert_eq!(rank["uncategorised"]["samples"], 0, "{name}");
        let share: f64 = rows
            .iter()
            .map(|row| row["share"].as_f64().expect("a share"))
            .sum();
        assert!((share - 1.0).abs() < 1e-9, "{name}: {share}");
        for wanted in ["interpreter", "nginx", "kernel", "lua_runtime"] {
            let row = rows.iter().find(|row| row["name"] == wanted);
            let samples = row.and_then(|row| row["samples"].as_u64()).unwrap_or(0);
            assert!(samples > 0, "{name}: no sample is in {wanted}: {rows:?}");
        }
        // Nothing of a gateway is foreign to it but libraries; more would mean that code is not recognised.
        let other = rows.iter().find(|row| row["name"] == "other");
        let other = other.map_or(0.0, |row| row["share"].as_f64().expect("a share"));
        assert!(
            other < 0.2,
            "{name}: {other} of the samples are in other code"
        );
    }
}

#[test]
fn path_rolls_the_rebuild_of_the_list_up_over_nine_entries() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let dir = directory();
    let case = dir.path().join("case.tl");
    if !recorded("global-rules", &case) {
        return;
    }
    let output = run!("path", case, "filter", "--json");
    assert_code(&output, 0);
    let report = json(&output);
    assert_nulls_have_reasons(&report);
    let entries = report["entered_from"].as_array().expect("entries");
    // A stack that was cut below its phase is an entry of its own.
    let whole: Vec<_> = entries
        .iter()
        .filter(|entry| entry["share"].as_f64().is_some_and(|share| share >= 0.02))
        .collect();
    // rewrite, access, before_proxy; header_filter; body_filter and delayed_body_filter for the data and for the end; log.
    assert_eq!(whole.len(), 9, "{}", out(&run!("path", case, "filter")));
    let share = |key: &str| report[key].as_f64().expect("a share");
    assert!(share("inclusive_share") >= share("self_share"));
    let own = report["self_in_lua"]["share"].as_f64().expect("a share");
    assert!(share("inclusive_share") > own, "its C code is included");
    assert!(share("inclusive_to_self_in_lua") > 1.0);
    assert!(share("us_per_request") > 0.0);
    assert!(out(&run!("path", case, "filter")).contains("times its own bytecode"));

    let output = run!("path", case, "no_such_function");
    assert_code(&output, 1);
}
