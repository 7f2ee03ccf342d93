//! Two compile states compared: what is the same start, what was lost, what the lost ones have in common.

use serde_json::{Value, json};
use throughline_analyses::jit::{Diff, JitDocument, diff};

/// A start in `function`, defined at `first_line`: {line, bytecode, compiled, given up, callees with their lines}.
struct Start {
    source: &'static str,
    function: &'static str,
    first_line: u32,
    line: u32,
    op: &'static str,
    given_up: bool,
    calls: &'static [(&'static str, u32)],
}

const LOOP: Start = Start {
    source: "@/srv/a.lua",
    function: "work",
    first_line: 10,
    line: 12,
    op: "FORL",
    given_up: false,
    calls: &[],
};

fn state(starts: &[Start]) -> JitDocument {
    let place = |source: &str, first_line: u32, name: &str| json!({"source": source, "first_line": first_line, "last_line": first_line + 5, "name": name});
    let starts: Vec<Value> = starts
        .iter()
        .map(|start| {
            let calls = start.calls.iter();
            let calls = calls.map(|(name, line)| json!({"name": name, "function": place("@/srv/log.lua", *line, name)}));
            json!({
                "start": {"source": start.source, "line": start.line, "op": start.op,
                          "function": place(start.source, start.first_line, start.function)},
                "compiled": u32::from(!start.given_up), "aborts": if start.given_up { 11 } else { 0 },
                "given_up": start.given_up, "body_inlined_in": [], "reason": null, "reason_reason": "none",
                "calls": calls.collect::<Vec<_>>(),
            })
        })
        .collect();
    let vm = json!({"pid": 1, "state": "0x1", "trace_count": 1, "trace_max": 1000, "mcode_bytes": 0, "mcode_max_bytes": 1,
        "jit_on": true, "traces": [], "penalties": [], "blacklisted": [], "starts": starts});
    let document = json!({"schema": "jit/1", "tool": "0", "vm": [vm], "events": null, "events_reason": "one look"});
    serde_json::from_value(document).expect("the document's own form")
}

fn sizes(diff: &Diff) -> [usize; 6] {
    [&diff.only_before, &diff.only_after, &diff.both]
        .map(|set| [set.compiled.len(), set.given_up.len()])
        .concat()
        .try_into()
        .expect("three pairs")
}

#[test]
fn a_start_is_the_same_on_a_shifted_line_and_in_another_directory() {
    let moved = [
        Start {
            first_line: 30,
            line: 32,
            ..LOOP
        },
        // The loop moved within its function, too.
        Start {
            first_line: 30,
            line: 35,
            ..LOOP
        },
        Start {
            source: "@/opt/2.0/srv/a.lua",
            ..LOOP
        },
        Start {
            source: "@/opt/2.0/srv/a.lua",
            first_line: 40,
            line: 44,
            ..LOOP
        },
    ];
    for after in moved {
        let (line, source) = (after.line, after.source);
        let diff = diff(&state(&[LOOP]), &state(&[after]));
        assert_eq!(sizes(&diff), [0, 0, 0, 0, 1, 0], "{source}:{line}");
        assert!(diff.both.compiled[0].moved_from.is_some());
    }
}

#[test]
fn another_function_or_another_bytecode_is_another_start() {
    let other = [
        Start {
            function: "rest",
            first_line: 30,
            line: 32,
            ..LOOP
        },
        Start {
            op: "ITERL",
            ..LOOP
        },
        Start {
            source: "@/srv/b.lua",
            ..LOOP
        },
    ];
    for after in other {
        let diff = diff(&state(&[LOOP]), &state(&[after]));
        assert_eq!(sizes(&diff), [1, 0, 1, 0, 0, 0]);
        assert_eq!(diff.only_before.compiled[0].other_state, "absent");
    }
}

#[test]
fn a_compiled_start_that_is_given_up_is_lost_and_says_what_it_was() {
    let diff = diff(
        &state(&[LOOP]),
        &state(&[Start {
            given_up: true,
            ..LOOP
        }]),
    );
    assert_eq!(sizes(&diff), [1, 0, 0, 1, 0, 0]);
    assert_eq!(diff.lost()[0].other_state, "compiled");
    assert_eq!(diff.lost()[0].aborts, 11);
}

/// Two loops call a logger, which calls what was given up for a reason of its own; all of them share a harmless helper.
#[test]
fn what_was_given_up_itself_is_named_before_what_all_merely_share() {
    let observe = Start {
        source: "@/srv/log.lua",
        function: "observe",
        first_line: 40,
        line: 40,
        op: "FUNCF",
        given_up: true,
        calls: &[("now", 90)],
    };
    let debug = Start {
        source: "@/srv/log.lua",
        function: "debug",
        first_line: 60,
        line: 60,
        op: "FUNCF",
        given_up: true,
        calls: &[("observe", 40), ("now", 90)],
    };
    let one = Start {
        given_up: true,
        calls: &[("debug", 60), ("now", 90)],
        ..LOOP
    };
    let two = Start {
        line: 22,
        first_line: 20,
        function: "more",
        given_up: true,
        calls: &[("debug", 60), ("now", 90)],
        ..LOOP
    };
    let diff = diff(&state(&[LOOP]), &state(&[one, two, debug, observe]));
    let first = &diff.common[0];
    assert_eq!(
        (
            first.name.as_str(),
            first.reached_by,
            first.of,
            first.starts
        ),
        ("observe", 4, 4, 1)
    );
    let text = diff.text();
    let line = text.lines().next().expect("a line");
    assert!(
        line.starts_with(
            "all 4 starts given up only after are or call observe() at /srv/log.lua:40"
        ),
        "{line}"
    );
}

#[test]
fn names_of_starts_cannot_steer_a_terminal() {
    let hostile = Start {
        source: "@/srv/\u{1b}[2J\u{202e}<script>\n.lua",
        given_up: true,
        ..LOOP
    };
    let text = diff(&state(&[]), &state(&[hostile])).text();
    assert!(text.contains("\\x1b[2J\\u{202e}<script>\\n.lua"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
}
