use super::*;

fn seen(name: &str, calls: u64, installed: Result<Installed, String>) -> FunctionSeen {
    FunctionSeen {
        name: name.to_owned(),
        calls,
        installed,
        captured_references: 0,
        search_cut: false,
    }
}

fn watched(functions: Vec<FunctionSeen>) -> Watched {
    Watched {
        pid: 7,
        counting: true,
        functions,
        ..Watched::default()
    }
}

fn known(count: u64) -> Requests {
    Requests::Known {
        count,
        source: "test".into(),
    }
}

#[test]
fn calls_of_all_processes_are_divided_by_all_requests() {
    let workers = [
        watched(vec![seen("plugin.filter", 700, Ok(Installed::BeforeLoad))]),
        watched(vec![seen("plugin.filter", 200, Ok(Installed::BeforeLoad))]),
    ];
    let report = calls(&workers, known(100), 2.0);
    assert_eq!(report.functions[0].calls, Some(900));
    assert_eq!(report.functions[0].per_request, Some(9.0));
    assert!(report.warnings.is_empty());
}

#[test]
fn a_function_that_was_never_wrapped_has_no_count_instead_of_none() {
    let absent = seen("plugin.gone", 0, Err("its module was not loaded".into()));
    let report = calls(&[watched(vec![absent])], known(100), 2.0);
    let function = serde_json::to_value(&report.functions[0]).unwrap();
    for field in ["calls", "per_request", "installed"] {
        assert!(function[field].is_null(), "{function}");
        assert_eq!(
            function[format!("{field}_reason")],
            "its module was not loaded"
        );
    }
}

#[test]
fn no_request_is_no_division() {
    for requests in [
        known(0),
        Requests::Unknown {
            reason: "none".into(),
        },
    ] {
        let one = seen("f", 5, Ok(Installed::BeforeLoad));
        let report = calls(&[watched(vec![one])], requests, 1.0);
        assert_eq!(report.functions[0].per_request, None);
        assert!(report.functions[0].per_request_reason.is_some());
    }
}

#[test]
fn references_that_bypass_the_counter_are_told_with_their_number() {
    let mut late = seen("plugin.filter", 500, Ok(Installed::AfterLoad));
    late.captured_references = 3;
    let report = calls(&[watched(vec![late.clone()])], known(100), 1.0);
    assert_eq!(
        report.warnings,
        ["plugin.filter: installed after load: 3 references bypass the counter"]
    );
    late.captured_references = 1;
    late.search_cut = true;
    let report = calls(&[watched(vec![late])], known(100), 1.0);
    assert_eq!(
        report.warnings,
        ["plugin.filter: installed after load: at least 1 reference bypasses the counter"]
    );
}

/// A run with starts at lines: compiled ones, and given-up ones.
fn run(counting: bool, compiled: &[u32], given_up: &[u32]) -> serde_json::Value {
    let fate = |line: &u32, compiled, aborts| {
        let start = StartPlace {
            // Each run in a directory of its own.
            source: format!("@/tmp/{line}{counting}/lua/gateway/a.lua"),
            line: *line,
            op: "FORL".into(),
        };
        StartFate::new(start, compiled, aborts, String::new())
    };
    let starts: Vec<StartFate> = compiled
        .iter()
        .map(|line| fate(line, 1, 0))
        .chain(given_up.iter().map(|line| fate(line, 0, 11)))
        .collect();
    serde_json::json!({"counting": counting, "jit": {"starts": starts}})
}

#[test]
fn equal_sets_of_starts_say_that_nothing_changed() {
    let runs = [run(false, &[1, 2], &[9]), run(true, &[2, 1], &[9])];
    let comparison = compare(&runs).unwrap();
    assert_eq!(comparison.probe_changed_jit, Some(false));
}

#[test]
fn a_start_given_up_in_every_run_with_counting_and_no_other_is_a_change() {
    let runs = [
        run(false, &[1, 2], &[]),
        run(true, &[1], &[2]),
        run(false, &[1, 2, 3], &[]),
        run(true, &[1, 3], &[2]),
    ];
    let comparison = compare(&runs).unwrap();
    assert_eq!(comparison.probe_changed_jit, Some(true));
    assert_eq!(comparison.given_up_only.with, ["gateway/a.lua:2 FORL"]);
}

#[test]
fn what_varies_from_run_to_run_is_not_laid_to_the_probe() {
    let runs = [
        run(false, &[1, 2], &[]),
        run(true, &[1, 3], &[]),
        run(false, &[1, 3, 4], &[]),
        run(true, &[1, 2, 4, 5], &[]),
    ];
    let comparison = compare(&runs).unwrap();
    assert_eq!(comparison.probe_changed_jit, Some(false), "{comparison:?}");
    assert!(comparison.compiled_varies > 0);
    // One run of each side cannot tell chance from cause.
    let comparison = compare(&runs[..2]).unwrap();
    assert_eq!(comparison.probe_changed_jit, None);
}

#[test]
fn runs_of_one_kind_and_documents_of_another_kind_are_refused() {
    let one = run(true, &[], &[]);
    assert!(compare(&[one.clone(), one.clone()]).is_err());
    assert!(compare(std::slice::from_ref(&one)).is_err());
    let refused = compare(&[one, serde_json::json!({"schema": "rank/1"})]).unwrap_err();
    assert!(refused.contains("document 2"), "{refused}");
}
