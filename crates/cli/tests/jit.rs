//! `jit` and `jit diff` on real LuaJIT programs.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{
    Running, assert_code, assert_nulls_have_reasons, directory, err, has_program, json, out,
};

/// A script in LuaJIT, once it has printed a line.
fn luajit(script: &Path) -> Running {
    let mut command = Command::new("luajit");
    let mut running = Running::start(command.arg(script).stdout(Stdio::piped()));
    let mut line = String::new();
    let output = running.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    running
}

/// The script with this text, in a directory that lives as long as the test.
fn script(dir: &tempfile::TempDir, name: &str, text: &str) -> std::path::PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

const SLEEP: &str = "\nlocal ffi = require('ffi') ffi.cdef('unsigned sleep(unsigned)') print('ready') io.stdout:flush() ffi.C.sleep(60)\n";

#[test]
fn the_state_has_the_names_of_the_contract_and_a_reason_for_each_null() {
    if !has_program("luajit") {
        return;
    }
    let dir = directory();
    let text = "local last for i = 1, 200000 do last = function() return i end end\nfor i = 1, 200 do last = i end";
    let running = luajit(&script(&dir, "a.lua", &format!("{text}{SLEEP}")));
    let output = run!("jit", "--pid", running.pid().to_string(), "--json");
    assert_code(&output, 0);
    let document = json(&output);
    assert_nulls_have_reasons(&document);
    let vm = &document["vm"][0];
    assert_eq!(vm["jit_on"], true);
    assert_eq!(vm["trace_count"], 1);
    assert_eq!(vm["traces"][0]["link"], "loop");
    assert_eq!(vm["traces"][0]["root"], 0);
    assert_eq!(vm["traces"][0]["start"]["line"], 2);
    assert_eq!(vm["traces"][0]["start"]["op"], "FORL");
    assert!(vm["traces"][0]["inlined"].is_array());
    let slot = &vm["penalties"][0];
    assert_eq!(
        (&slot["aborts"], &slot["reason"]),
        (&Value::from(10), &Value::from("NYI: bytecode"))
    );
    assert_eq!(vm["blacklisted"][0]["op"], "IFORL");
    let given_up = vm["starts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|start| start["given_up"] == true)
        .unwrap();
    assert_eq!(
        (&given_up["aborts"], &given_up["start"]["line"]),
        (&Value::from(11), &Value::from(1))
    );
    let text = out(&run!("jit", "--pid", running.pid().to_string()));
    let wrong = text.lines().nth(1).unwrap();
    assert!(
        wrong.contains("1 starts given up after 11 aborts"),
        "what is wrong comes first: {text}"
    );
}

#[test]
fn a_hostile_chunk_name_is_inert_in_text_and_whole_in_json() {
    if !has_program("luajit") {
        return;
    }
    let dir = directory();
    let text = "loadstring('for i = 1, 200 do end', '@/srv/<script>\\27[2J\\27]0;x\\7\\n.lua')()";
    let running = luajit(&script(&dir, "a.lua", &format!("{text}{SLEEP}")));
    let text = out(&run!("jit", "--pid", running.pid().to_string()));
    assert!(
        text.contains("/srv/<script>\\x1b[2J\\x1b]0;x\\x07\\n.lua:1 FORL"),
        "{text}"
    );
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    let output = run!("jit", "--pid", running.pid().to_string(), "--json");
    assert!(
        output.stdout.iter().rev().skip(1).all(|byte| *byte >= 0x20),
        "one line without control characters"
    );
    assert_eq!(
        json(&output)["vm"][0]["traces"][0]["start"]["source"],
        "@/srv/<script>\u{1b}[2J\u{1b}]0;x\u{7}\n.lua"
    );
}

#[test]
fn a_watch_sees_flushes_and_says_which_cache_was_full() {
    if !has_program("luajit") {
        return;
    }
    let dir = directory();
    // Every few milliseconds a new loop, and room for twenty.
    let text = "local ffi = require('ffi') ffi.cdef('int usleep(unsigned)') jit.opt.start('maxtrace=20') print('ready') io.stdout:flush()
        local limit = os.time() + 30
        while os.time() < limit do loadstring('local x = 0 for i = 1, 200 do x = x + i end')() ffi.C.usleep(8000) end";
    let running = luajit(&script(&dir, "a.lua", text));
    let output = run!(
        "jit",
        "--pid",
        running.pid().to_string(),
        "--for",
        "3s",
        "--interval",
        "2ms",
        "--json"
    );
    let events = &json(&output)["events"];
    assert_eq!(events["source"], "polled");
    assert!(events["stop"].as_u64().unwrap() >= 20, "{events}");
    assert!(events["flush"].as_u64().unwrap() >= 1, "{events}");
    let explained = events["explanations"].to_string();
    assert!(
        explained.contains("trace table full") && explained.contains("maxtrace"),
        "{explained}"
    );
}

#[test]
fn a_process_without_a_vm_is_code_3_and_says_so() {
    let busy = Running::spinning();
    let output = run!("jit", "--pid", busy.pid().to_string());
    assert_code(&output, 3);
    assert!(out(&output).contains("no LuaJIT VM"), "{}", out(&output));
}

#[test]
fn two_states_are_compared_and_a_lost_start_is_code_1() {
    if !has_program("luajit") {
        return;
    }
    let dir = directory();
    let program = |body: &str| {
        format!(
            "local keep\nlocal function observe(i) {body} end\nlocal function work() for i = 1, 400000 do observe(i) end end\nwork() keep = nil{SLEEP}"
        )
    };
    let mut states = Vec::new();
    for (name, body) in [
        ("off", "return i"),
        ("on", "keep = function() return i end"),
    ] {
        let running = luajit(&script(&dir, "a.lua", &program(body)));
        let output = run!("jit", "--pid", running.pid().to_string(), "--json");
        states.push(script(&dir, &format!("{name}.json"), &out(&output)));
    }
    let output = run!("jit", "diff", states[0], states[1], "--json");
    assert_code(&output, 1);
    let document = json(&output);
    assert_nulls_have_reasons(&document);
    for side in ["only_before", "only_after", "both"] {
        assert!(document[side]["compiled"].is_array() && document[side]["given_up"].is_array());
    }
    let first = out(&run!("jit", "diff", states[0], states[1]));
    assert!(
        first.lines().next().unwrap().contains("observe() at"),
        "{first}"
    );
    assert_code(&run!("jit", "diff", states[0], states[0]), 0);
    let output = run!("jit", "diff", states[0], dir.path().join("a.lua"));
    assert_code(&output, 2);
    assert!(
        err(&output).contains("a.lua is no document"),
        "{}",
        err(&output)
    );
}
