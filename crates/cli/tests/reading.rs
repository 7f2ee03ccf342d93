//! Reading a case whose content is known: no privileges, no live process.

mod support;

use std::fs;

use rusqlite::Connection;
use support::{
    HOSTILE, assert_balances, assert_code, assert_nulls_have_reasons, directory, err, json,
    known_case, out,
};

#[test]
fn rank_gives_the_shares_that_were_put_in_with_their_denominator() {
    let dir = directory();
    let case = known_case(dir.path());
    let output = run!("rank", case, "--json");
    assert_code(&output, 0);
    let document = json(&output);
    assert_nulls_have_reasons(&document);
    assert_balances(&document["ledger"]);
    assert_eq!(document["denominators"]["samples"], 150);
    let main = &document["native"].as_array().unwrap()[0];
    assert_eq!(main["function"], "main");
    assert_eq!(main["self_samples"], 90);
    assert_eq!(main["self_share"], 0.6);
    assert_eq!(main["inclusive_share"], 1.0);
    assert!(document["schema"].is_string() && document["tool"].is_string());

    let off = json(&run!("rank", case, "--off-cpu", "--json"));
    assert_eq!(off["denominators"]["blocked_ns"], 30_000_000);
    assert_eq!(off["denominators"]["idle_ns"], 10_000_000);
    let one = json(&run!("rank", case, "--limit", "1", "--json"));
    assert_eq!(one["native"].as_array().unwrap().len(), 1);
}

#[test]
fn foreign_names_reach_no_terminal_as_they_are() {
    let dir = directory();
    let case = known_case(dir.path());
    for verb in ["rank", "captures"] {
        let output = run!(verb, case);
        assert_code(&output, 0);
        for text in [out(&output), err(&output)] {
            assert!(!text.contains('\x1b'), "{verb}: {text:?}");
        }
    }
}

#[test]
fn flame_writes_the_page_an_svg_and_folded_stacks() {
    let dir = directory();
    let case = known_case(dir.path());
    let page = dir.path().join("out.html");
    let svg = dir.path().join("out.svg");
    let output = run!("flame", case, "-o", page, "--svg", svg, "--json");
    assert_code(&output, 0);
    let document = json(&output);
    let sizes: Vec<_> = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(
        sizes,
        [
            fs::metadata(&page).unwrap().len(),
            fs::metadata(&svg).unwrap().len()
        ]
    );
    assert_balances(&document["ledger"]);
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
    let escaped = r"main;\x1b[2J<script>alert(1)</script>\x3b\x0a";
    let folded = format!("main 90\n{escaped} 60\n");
    assert_eq!(out(&run!("flame", case, "--folded", "-")), folded);
    assert_eq!(out(&run!("export", case, "--format", "folded")), folded);
    assert_eq!(
        out(&run!(
            "export", case, "--format", "folded", "--search", "script"
        )),
        format!("{escaped} 60\n")
    );
    assert_eq!(
        out(&run!("export", case, "--format", "folded", "--off-cpu")),
        format!("{escaped} 30000000\n")
    );
    assert_eq!(
        out(&run!("export", case, "--format", "folded", "--idle")),
        format!("{escaped} 10000000\n")
    );
}

#[test]
fn a_wrong_search_leaves_no_file_behind() {
    let dir = directory();
    let case = known_case(dir.path());
    let svg = dir.path().join("out.svg");
    let output = run!("flame", case, "--svg", svg, "--search", "(");
    assert_code(&output, 2);
    assert!(
        err(&output).contains("regular expression"),
        "{}",
        err(&output)
    );
    assert!(!svg.exists());
}

#[test]
fn captures_lists_what_the_case_holds() {
    let dir = directory();
    let case = known_case(dir.path());
    let document = json(&run!("captures", case, "--json"));
    let capture = &document["captures"].as_array().unwrap()[0];
    assert_eq!(capture["capture"], 1);
    assert_eq!(capture["seconds"], 2.0);
    assert_eq!(capture["complete"], true);
    assert_eq!(capture["targets"][0]["comm"], HOSTILE);
    assert_balances(&capture["ledger"]);
}

#[test]
fn too_few_samples_are_no_ranking_and_code_3() {
    let dir = directory();
    let case = known_case(dir.path());
    let output = run!("rank", case, "--pid", "8");
    assert_code(&output, 3);
    assert!(err(&output).contains("not enough data"), "{}", err(&output));
}

#[test]
fn a_case_that_cannot_be_read_is_refused_with_the_reason() {
    let dir = directory();
    let case = known_case(dir.path());
    let missing = run!("rank", dir.path().join("none.tl"));
    assert_code(&missing, 2);
    assert!(
        err(&missing).contains("there is no case file"),
        "{}",
        err(&missing)
    );

    let text = dir.path().join("text.tl");
    fs::write(&text, "perf script output").unwrap();
    let foreign = run!("flame", text);
    assert_code(&foreign, 2);
    assert!(
        err(&foreign).contains("not a case file"),
        "{}",
        err(&foreign)
    );

    let no_capture = run!("rank", case, "--capture", "5");
    assert_code(&no_capture, 2);
    assert!(
        err(&no_capture).contains("no capture 5"),
        "{}",
        err(&no_capture)
    );

    Connection::open(&case)
        .unwrap()
        .pragma_update(None, "user_version", 999)
        .unwrap();
    for arguments in [
        vec!["rank"],
        vec!["captures"],
        vec!["record", "--pid", "1", "-o"],
    ] {
        let newer = support::throughline()
            .args(arguments)
            .arg(&case)
            .output()
            .unwrap();
        assert_code(&newer, 2);
        assert!(
            err(&newer).contains("use a newer throughline"),
            "{}",
            err(&newer)
        );
    }
}

#[test]
fn a_damaged_case_is_read_as_far_as_it_can_be_and_code_4() {
    let dir = directory();
    let case = known_case(dir.path());
    let connection = Connection::open(&case).unwrap();
    connection
        .pragma_update(None, "foreign_keys", false)
        .unwrap();
    connection
        .execute(
            "UPDATE on_cpu_sample SET stack = 4000000 WHERE sample % 10 = 0",
            [],
        )
        .unwrap();
    drop(connection);
    let output = run!("rank", case, "-q");
    assert_code(&output, 4);
    assert!(out(&output).contains("main"), "{}", out(&output));
    assert!(err(&output).contains("damaged"), "{}", err(&output));
}

#[test]
fn a_case_of_which_damage_left_nothing_is_damaged_and_not_short_of_data() {
    let dir = directory();
    let case = known_case(dir.path());
    let connection = Connection::open(&case).unwrap();
    connection
        .execute_batch(
            "PRAGMA ignore_check_constraints = ON;
             UPDATE on_cpu_sample SET time_ns = -1; UPDATE off_cpu_sample SET time_ns = -1;",
        )
        .unwrap();
    drop(connection);
    for output in [
        run!("rank", case),
        run!("flame", case, "--folded", "-"),
        run!("export", case, "--format", "folded"),
    ] {
        assert_code(&output, 4);
        assert!(err(&output).contains("is damaged"), "{}", err(&output));
    }
}

#[test]
fn standard_output_takes_one_result() {
    let dir = directory();
    let case = known_case(dir.path());
    for arguments in [
        vec!["flame", "--svg", "-", "--folded", "-"],
        vec!["flame", "--folded", "-", "--json"],
        vec!["export", "--format", "folded", "--json"],
    ] {
        let output = support::throughline()
            .args(&arguments)
            .arg(&case)
            .output()
            .unwrap();
        assert_code(&output, 2);
        assert!(
            err(&output).contains("one result"),
            "{arguments:?}: {}",
            err(&output)
        );
    }
}
