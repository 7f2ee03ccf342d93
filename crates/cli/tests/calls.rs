//! `throughline calls` on a real gateway whose calls per request are known.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::*;

fn probe_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../probe")
        .canonicalize()
        .unwrap()
}

/// A prelude that starts the probe, after `before`, with `options`.
fn prelude(directory: &Path, before: &str, options: &str) -> PathBuf {
    let path = directory.join("prelude.lua");
    let code = format!(
        "package.path = '{}/?.lua;' .. package.path\n{before}\nassert(require('throughline').start {{ {options} }})\n",
        probe_directory().display()
    );
    std::fs::write(&path, code).unwrap();
    path
}

/// A gateway without load: its worker, its address, and what ends it.
struct Gateway {
    lab: Running,
    ready: Value,
}

impl Gateway {
    fn start(lab: &str, prelude: &Path, more: &[&str]) -> Self {
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"lab", &"run", &lab];
        arguments.extend([
            &"--load" as &dyn AsRef<std::ffi::OsStr>,
            &"none",
            &"--json",
            &"--for",
            &"50s",
            &"--prelude",
            &prelude,
        ]);
        for argument in more {
            arguments.push(argument);
        }
        let mut lab = recorder(&arguments);
        let output = lab.0.stdout.take().unwrap();
        let first = BufReader::new(output).lines().next().unwrap().unwrap();
        let ready = serde_json::from_str(&first).unwrap_or_else(|_| panic!("{first}"));
        Self { lab, ready }
    }

    fn master(&self) -> String {
        self.ready["pids"]["master"].to_string()
    }

    fn workers(&self) -> String {
        let workers = self.ready["pids"]["workers"].as_array().unwrap();
        let workers: Vec<String> = workers.iter().map(ToString::to_string).collect();
        workers.join(",")
    }

    fn get(&self) {
        let url = self.ready["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
    }

    /// What `calls` says of a time in which `requests` requests came.
    fn calls_during(&self, pids: &str, requests: u32) -> Value {
        let mut command = throughline();
        command
            .args(["calls", "--json", "--for", "3s", "--pid", pids])
            .stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..requests {
            self.get();
        }
        let output = child.wait_with_output().unwrap();
        assert_code(&output, 0);
        let document = json(&output);
        assert_nulls_have_reasons(&document);
        document
    }

    fn end(self) {
        self.lab.signal(Signal::INT);
        finish(self.lab);
    }
}

fn function<'a>(document: &'a Value, name: &str) -> &'a Value {
    let mut functions = document["functions"].as_array().unwrap().iter();
    functions
        .find(|function| function["function"] == name)
        .unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn an_early_probe_counts_exactly_nine_passes_of_filter_per_request() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let scratch = directory();
    let options = "count = { 'gateway.plugin.filter', 'gateway/router.lua:19', 'no.such' }";
    for (more, per_request) in [(&[][..], 9), (&["--fixed"][..], 1)] {
        let prelude = prelude(scratch.path(), "", options);
        let gateway = Gateway::start("global-rules", &prelude, more);
        let document = gateway.calls_during(&gateway.workers(), 40);
        assert_eq!(document["schema"], "calls/1");
        assert_eq!(document["requests"], 40, "{document}");
        let filter = function(&document, "gateway.plugin.filter");
        assert_eq!(filter["calls"], 40 * per_request, "{document}");
        assert_eq!(filter["per_request"], f64::from(per_request));
        assert_eq!(filter["installed"], "before_load");
        assert_eq!(filter["captured_references"], 0);
        // The function that begins on this line is `router.match`, named by its place.
        let router = function(&document, "gateway/router.lua:19");
        assert_eq!(router["calls"], 40, "{document}");
        assert!(function(&document, "no.such")["calls"].is_null());
        assert_eq!(document["warnings"], serde_json::json!([]));
        gateway.end();
    }
}

#[test]
fn a_late_probe_counts_fewer_and_says_how_many_references_bypass_it() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let scratch = directory();
    let options = "count = { 'gateway.plugin.filter' }";
    let prelude = prelude(scratch.path(), "require('gateway')", options);
    let gateway = Gateway::start("global-rules", &prelude, &[]);
    let document = gateway.calls_during(&gateway.workers(), 20);
    let filter = function(&document, "gateway.plugin.filter");
    assert!(filter["per_request"].as_f64().unwrap() < 9.0, "{document}");
    assert_eq!(filter["installed"], "after_load");
    assert_eq!(filter["captured_references"], 1);
    assert_eq!(
        document["warnings"][0],
        "gateway.plugin.filter: installed after load: 1 reference bypasses the counter"
    );
    gateway.end();
}

#[test]
fn requests_of_all_workers_are_not_divided_by_for_one_of_them() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let scratch = directory();
    let options = "count = { 'gateway.plugin.filter' }";
    let of_nginx = prelude(scratch.path(), "", options);
    let gateway = Gateway::start("global-rules", &of_nginx, &["--workers", "2"]);
    let all = gateway.calls_during(&gateway.workers(), 30);
    assert_eq!(all["requests"], 30);
    assert_eq!(function(&all, "gateway.plugin.filter")["calls"], 270);
    let workers = gateway.workers();
    let (one, _) = workers.split_once(',').unwrap();
    let of_one = gateway.calls_during(one, 1);
    assert!(of_one["requests"].is_null(), "{of_one}");
    assert!(
        of_one["requests_reason"]
            .as_str()
            .unwrap()
            .contains("not among")
    );
    gateway.end();

    // A function that runs once per request counts them in each worker by itself.
    let options = "count = { 'gateway.plugin.filter' }, requests = 'gateway.http_log_phase'";
    let of_function = prelude(scratch.path(), "", options);
    let gateway = Gateway::start("global-rules", &of_function, &["--workers", "2"]);
    let workers = gateway.workers();
    let (one, _) = workers.split_once(',').unwrap();
    let of_one = gateway.calls_during(one, 30);
    let requests = of_one["requests"].as_u64().unwrap();
    assert!(requests <= 30);
    assert_eq!(
        function(&of_one, "gateway.plugin.filter")["calls"],
        requests * 9
    );
    gateway.end();
}

#[test]
fn counting_goes_on_over_a_reload() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let scratch = directory();
    let options = "count = { 'gateway.plugin.filter' }, requests = 'gateway.http_log_phase'";
    let prelude = prelude(scratch.path(), "", options);
    let gateway = Gateway::start("global-rules", &prelude, &[]);
    let master = gateway.master();
    let status = std::process::Command::new("kill")
        .args(["-HUP", &master])
        .status()
        .unwrap();
    assert!(status.success());
    std::thread::sleep(Duration::from_secs(3));
    let children = format!("/proc/{master}/task/{master}/children");
    let workers = std::fs::read_to_string(children).unwrap();
    let worker = workers.trim();
    assert!(worker != gateway.workers(), "a new worker");
    let document = gateway.calls_during(worker, 12);
    assert_eq!(document["requests"], 12, "{document}");
    assert_eq!(function(&document, "gateway.plugin.filter")["calls"], 108);
    gateway.end();
}

#[test]
fn the_given_up_starts_of_a_gateway_are_told_with_their_reason() {
    if !may_record() || !has_program("nginx") {
        return;
    }
    let scratch = directory();
    let prelude = prelude(
        scratch.path(),
        "",
        "counting = false, count = { 'gateway.log.debug' }",
    );
    let gateway = Gateway::start("log-bypass", &prelude, &[]);
    let document = gateway.calls_during(&gateway.workers(), 400);
    assert_eq!(document["counting"], false);
    assert!(function(&document, "gateway.log.debug")["calls"].is_null());
    let starts = document["jit"]["starts"].as_array().unwrap();
    let observe = starts.iter().find(|start| {
        let place = &start["start"];
        place["source"]
            .as_str()
            .unwrap()
            .ends_with("gateway/log.lua")
            && place["line"] == 31
    });
    let observe = observe.unwrap_or_else(|| panic!("{document}"));
    assert!(observe["aborts"].as_u64().unwrap() >= 3, "{observe}");
    assert_eq!(observe["reason"], "NYI: bytecode FNEW");
    gateway.end();
}

#[test]
fn processes_without_a_probe_are_not_enough_data() {
    if !may_record() {
        return;
    }
    let own = std::process::id().to_string();
    let output = run!("calls", "--pid", own, "--for", "100ms");
    assert_code(&output, 3);
    assert!(err(&output).contains("probe/throughline.lua"));
    let output = run!("calls", "--for", "1s");
    assert_code(&output, 2);
}
