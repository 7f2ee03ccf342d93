//! The programs of testdata/lua: what a look from outside finds of the JIT compiler, against what LuaJIT itself said
//! while they ran (`jit.attach`) and says afterwards (`jit.util`), in every build.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{Running, find};
use throughline_luabuilds::{Build, all, ready};
use throughline_target::{
    ABORTS_TO_GIVE_UP, Census, Origin, Place, SurveyEnd, abort_reason, census,
};

fn builds() -> impl Iterator<Item = Build> {
    all().into_iter().filter_map(ready)
}

fn run(build: &Build, program: &str) -> (Running, Census) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/lua");
    let folder = folder.canonicalize().expect("the programs are there");
    let text = folder.to_str().expect("a path of text");
    let child = build
        .run(&folder.join(program), &[text])
        .expect("the build runs");
    let running = Running::wait_for(&build.name, child);
    let process = running.process();
    let found = find(&process, build);
    let census = census(&process, &found.maps.mappings, &found.vm).expect("a look");
    assert_eq!(census.changed, [], "{} {program}: it sleeps", build.name);
    assert_eq!(
        census.heap.end,
        SurveyEnd::Whole,
        "{} {program}",
        build.name
    );
    (running, census)
}

/// {line, index of the instruction in its function}.
fn place(census: &Census, start: &Place) -> (String, String) {
    let prototype = census
        .prototype(start.bytecode_start)
        .expect("the function exists");
    let line = prototype.line_at(start.pc + 4).expect("with lines");
    (
        line.to_string(),
        ((start.pc - start.bytecode_start) / 4).to_string(),
    )
}

fn is_of_witness(census: &Census, start: &Place) -> bool {
    let prototype = census.prototype(start.bytecode_start);
    prototype.is_some_and(|prototype| prototype.source().ends_with("witness.lua"))
}

/// As `witness.lua` prints them, sorted.
fn facts(running: &Running, kind: &str) -> Vec<Vec<String>> {
    let mut facts: Vec<Vec<String>> = running
        .facts(kind)
        .into_iter()
        .map(<[String]>::to_vec)
        .collect();
    facts.sort();
    facts
}

fn traces(census: &Census) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = census
        .traces
        .iter()
        .map(|entry| {
            let (line, instruction) = place(census, &entry.start);
            let parent = match entry.trace.origin {
                Origin::Root => 0,
                Origin::Exit { trace, .. } | Origin::Stitch { trace } => trace,
            };
            vec![
                entry.trace.number.to_string(),
                entry.trace.link.unwrap_or(0).to_string(),
                entry.trace.link_type.to_string(),
                line,
                instruction,
                parent.to_string(),
            ]
        })
        .collect();
    rows.sort();
    rows
}

/// Programs, and the reason that at least one start of theirs must have been aborted for, where that is certain.
const PROGRAMS: [(&str, Option<&str>); 12] = [
    ("nyi_bytecode.lua", Some("NYI: bytecode")),
    ("blacklisted.lua", Some("NYI: bytecode")),
    ("blacklisted_function.lua", Some("NYI: bytecode")),
    ("call_unroll.lua", None),
    ("loop_unroll.lua", None),
    ("inner_loop.lua", None),
    ("stitched.lua", None),
    ("side_traces.lua", None),
    ("switched_off.lua", None),
    ("mcode_full.lua", None),
    ("trace_table_full.lua", None),
    ("flush.lua", Some("NYI: bytecode")),
];

#[test]
fn traces_aborts_reasons_and_given_up_starts_are_those_that_the_vm_tells_itself() {
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for build in builds() {
        for (program, certain) in PROGRAMS {
            let (running, census) = run(&build, program);
            let what = format!("{} {program}", build.name);
            assert_eq!(census.unreadable, [], "{what}");
            assert_eq!(traces(&census), facts(&running, "trace"), "{what}");
            aborts_agree(&running, &census, &what);
            given_up_agree(&running, &census, &what);
            for penalty in &census.penalties {
                *reasons
                    .entry(abort_reason(penalty.reason).expect("known"))
                    .or_default() += 1;
            }
            if let Some(certain) = certain {
                let seen = census
                    .penalties
                    .iter()
                    .any(|slot| abort_reason(slot.reason) == Some(certain));
                assert!(seen, "{what}: {certain}");
            }
        }
    }
    eprintln!("reasons seen: {reasons:?}");
}

/// Each start that the VM told of has its count and its last reason; no other start has any.
fn aborts_agree(running: &Running, census: &Census, what: &str) {
    let mut told = BTreeMap::new();
    for fact in facts(running, "aborts") {
        let [line, instruction, count, reason] = &fact[..] else {
            panic!("{what}: {fact:?}")
        };
        told.insert(
            (line.clone(), instruction.clone()),
            (count.parse::<u32>().expect("a count"), reason.clone()),
        );
    }
    let mut seen = BTreeMap::new();
    for start in census.starts.iter().filter(|start| start.aborts > 0) {
        let reason = start
            .reason
            .map(|reason| reason.to_string())
            .unwrap_or_default();
        seen.insert(place(census, &start.start), (start.aborts, reason));
    }
    assert_eq!(seen, told, "{what}");
}

/// The patched bytecodes of the functions in which a start was tried, as `jit.util.funcbc` shows them.
fn given_up_agree(running: &Running, census: &Census, what: &str) {
    let given_up = census
        .patched
        .iter()
        .filter(|patched| !patched.switched_off && !is_of_witness(census, &patched.start));
    let mut seen: Vec<Vec<String>> = given_up
        .map(|patched| {
            let (line, instruction) = place(census, &patched.start);
            vec![line, instruction, patched.op.to_owned()]
        })
        .collect();
    seen.sort();
    if running.facts("no_vmdef").is_empty() {
        assert_eq!(seen, facts(running, "patched"), "{what}");
    }
    let starts = census.starts.iter().filter(|start| start.given_up).count();
    assert_eq!(starts, seen.len(), "{what}");
    let exactly = |start: &&throughline_target::StartSummary| start.aborts == ABORTS_TO_GIVE_UP;
    assert_eq!(
        census.starts.iter().filter(exactly).count(),
        starts,
        "{what}"
    );
}

#[test]
fn a_function_that_was_switched_off_is_not_called_given_up() {
    for build in builds() {
        let (_running, census) = run(&build, "switched_off.lua");
        let of_program = |start: &Place| !is_of_witness(&census, start);
        let patched = census
            .patched
            .iter()
            .filter(|patched| of_program(&patched.start));
        let patched: Vec<_> = patched
            .map(|patched| (patched.op, patched.switched_off))
            .collect();
        assert_eq!(patched, [("IFORL", true)], "{}", build.name);
        assert!(
            census.starts.iter().all(|start| !start.given_up),
            "{}",
            build.name
        );
    }
}

#[test]
fn an_inlined_function_is_found_in_every_trace_of_its_loop() {
    for build in builds() {
        let (_running, census) = run(&build, "side_traces.lua");
        let leaf = |start: &u64| {
            census
                .prototype(*start)
                .is_some_and(|prototype| prototype.first_line == 3)
        };
        let root = census
            .traces
            .iter()
            .find(|entry| entry.trace.root.is_none())
            .expect("the loop");
        assert!(
            root.inlined.iter().any(leaf),
            "{}: {:?}",
            build.name,
            root.inlined
        );
    }
}

#[test]
fn abort_reasons_are_those_of_the_builds_own_vmdef() {
    for build in builds() {
        let Some(vmdef) = &build.vmdef else { continue };
        let text = std::fs::read_to_string(vmdef).expect("vmdef.lua");
        let (_, list) = text.split_once("traceerr = {").expect("traceerr");
        let (list, _) = list.split_once("\n}").expect("its end");
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert!(names.len() > 30, "{}", build.name);
        for (number, name) in (0..).zip(&names) {
            // Without the operand, which the penalty slot does not keep.
            let name = name.trim_end_matches(" %s").trim_end_matches(" %d");
            assert_eq!(abort_reason(number), Some(name), "{}", build.name);
        }
        assert_eq!(abort_reason(names.len() as u16), None, "{}", build.name);
    }
}
