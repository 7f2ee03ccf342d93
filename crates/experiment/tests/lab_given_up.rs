//! What LuaJIT itself says about the starts of traces in the lab `log-bypass`.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use support::*;

fn lab_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lab/log-bypass")
}

fn expected() -> toml::Table {
    let text = fs::read_to_string(lab_directory().join("expected.toml")).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    table.remove("given_up").unwrap().try_into().unwrap()
}

fn starts(given_up: &toml::Table, field: &str) -> Vec<String> {
    given_up[field].clone().try_into().unwrap()
}

/// Aborts of each start of the gateway's own code, `gateway/log.lua:31 FUNCF`, as `jit.attach` saw
/// them, and the number of requests that were served meanwhile.
fn aborts_under_load(fixed: bool) -> (BTreeMap<String, u64>, u64) {
    let scratch = tempfile::tempdir().unwrap();
    let events = scratch.path().join("events");
    fs::write(&events, "").unwrap();
    let prelude = scratch.path().join("prelude.lua");
    let recorder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/jit_events.lua");
    fs::write(&prelude, format!("loadfile({recorder:?})({events:?})\n")).unwrap();
    let mut arguments = vec!["log-bypass", "--for", "6", "--prelude"];
    arguments.push(prelude.to_str().unwrap());
    if fixed {
        arguments.push("--fixed");
    }
    let summary = run(&arguments);
    assert_eq!(summary["errors"], 0, "{summary}");

    let text = fs::read_to_string(&events).unwrap();
    assert!(text.contains("start\t"), "LuaJIT reported no event");
    let mut aborts = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["abort", place, op, _reason] = fields[..]
            && let Some((_, place)) = place.split_once("/lua/gateway/")
        {
            *aborts.entry(format!("gateway/{place} {op}")).or_default() += 1;
        }
    }
    (aborts, summary["requests"].as_u64().unwrap())
}

fn given_up(aborts: &BTreeMap<String, u64>, limit: u64) -> Vec<String> {
    aborts
        .iter()
        .filter(|(_, count)| **count >= limit)
        .map(|(start, _)| start.clone())
        .collect()
}

#[test]
fn every_caller_of_the_logger_is_given_up_after_eleven_aborts() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let expected = expected();
    let limit = u64::try_from(expected["aborts"].as_integer().unwrap()).unwrap();
    let requests_min = u64::try_from(expected["requests_min"].as_integer().unwrap()).unwrap();
    let (aborts, requests) = aborts_under_load(false);
    eprintln!("{requests} requests, aborts: {aborts:?}");
    if requests < requests_min {
        eprintln!("SKIPPED: CPU: {requests} requests in the time, {requests_min} needed");
        return;
    }
    for start in starts(&expected, "starts") {
        assert_eq!(aborts.get(&start), Some(&limit), "{start}: {aborts:?}");
    }
    let mut allowed = starts(&expected, "starts");
    allowed.extend(starts(&expected, "starts_later"));
    for start in given_up(&aborts, limit) {
        assert!(allowed.contains(&start), "{start} was given up as well");
    }
    assert!(
        aborts.values().all(|&count| count <= limit),
        "LuaJIT tried a start again that it had given up: {aborts:?}"
    );
}

#[test]
fn nothing_is_given_up_when_the_level_is_looked_at_first() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let expected = expected();
    let limit = u64::try_from(expected["aborts"].as_integer().unwrap()).unwrap();
    let (aborts, requests) = aborts_under_load(true);
    eprintln!("{requests} requests, aborts: {aborts:?}");
    assert_eq!(given_up(&aborts, limit), starts(&expected, "starts_fixed"));
}

#[test]
fn the_expected_starts_name_lines_of_functions_and_loops() {
    let expected = expected();
    let mut all = starts(&expected, "starts");
    all.extend(starts(&expected, "starts_later"));
    for start in all {
        let (place, op) = start.split_once(' ').unwrap();
        let (file, line) = place.split_once(':').unwrap();
        let text = fs::read_to_string(lab_directory().join("lua").join(file)).unwrap();
        let line = text
            .lines()
            .nth(line.parse::<usize>().unwrap() - 1)
            .unwrap();
        let keyword = if op == "FUNCF" { "function " } else { "for " };
        assert!(line.contains(keyword), "{start}: {line:?}");
    }
    let common = expected["common_callee_start"].as_str().unwrap();
    let name = expected["common_callee"].as_str().unwrap();
    assert!(starts(&expected, "starts").contains(&format!("{common} FUNCF")));
    let text = fs::read_to_string(lab_directory().join("lua/gateway/log.lua")).unwrap();
    assert!(text.contains(&format!("local function {name}(")));
}
