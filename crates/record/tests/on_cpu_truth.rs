//! Running programs whose shares, stacks and CPU time are known, measured against what the programs say of themselves.

mod support;

use std::process::Command;

use support::program::{Program, compile, marked_line, programs};
use support::recording::{Plan, Recording, one_at_a_time, record_to_the_end};
use throughline_profile::{Frame, Groups, Measure, Sample, StackWeights};

const RATE_HZ: u32 = 997;

/// The largest share by which the number of samples may miss rate x CPU time.
const COUNT_TOLERANCE: f64 = 0.02;

fn luajit(script: &str, arguments: &[&str]) -> Option<Program> {
    if Command::new("luajit").arg("-v").output().is_err() {
        eprintln!("SKIPPED: luajit: the program luajit is not installed");
        return None;
    }
    let script = programs().join(script);
    let arguments: Vec<&str> = std::iter::once(script.to_str().expect("a path of this test"))
        .chain(arguments.iter().copied())
        .collect();
    let mut program = Program::start("luajit", &arguments);
    program.expect_line("ready");
    Some(program)
}

fn assert_count(recording: &Recording) {
    let cpu_ns = recording.target().cpu_ns.expect("the scheduler's account") as f64;
    let expected = cpu_ns / 1e9 * f64::from(RATE_HZ);
    let taken = recording.profile.capture.ledger_on_cpu.taken as f64;
    let ratio = taken / expected;
    eprintln!(
        "{taken} samples were taken in {:.3} s of CPU: {ratio:.4} of rate x CPU time",
        cpu_ns / 1e9
    );
    assert!(
        (ratio - 1.0).abs() <= COUNT_TOLERANCE,
        "{taken} samples where {expected:.0} were due"
    );
}

fn lua_shares_are_true(mode: &str) {
    let _turn = one_at_a_time();
    let Some(mut program) = luajit("shares.lua", &["1.2", mode]) else {
        return;
    };
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let truth = program.numbers();
    assert_eq!(truth.len(), 3);
    recording.assert_shares(&truth, |sample| {
        recording.lua_function(sample).map(str::to_owned)
    });
    recording.assert_ledgers_balance();
    assert_count(&recording);
}

#[test]
fn interpreted_lua_functions_get_the_shares_that_they_say() {
    lua_shares_are_true("off");
}

#[test]
fn compiled_lua_functions_get_the_shares_that_they_say() {
    lua_shares_are_true("on");
}

/// The C program's function by symbol, or by address when the program has no symbols any more.
fn c_shares_are_true(name: &str, flags: &[&str], strip: bool) {
    let _turn = one_at_a_time();
    let path = compile("shares.c", name, flags);
    let symbols = symbols_of(&path);
    if strip {
        assert!(
            Command::new("strip")
                .arg(&path)
                .status()
                .expect("strip is installed")
                .success()
        );
    }
    let mut program = Program::start(&path, &["1.2"]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let truth = program.numbers();
    recording.assert_shares(&truth, |sample| {
        let frames = recording.frames(sample);
        let leaf = frames.iter().find(|frame| {
            recording
                .module(frame)
                .is_some_and(|path| path.ends_with(name))
        })?;
        if !strip {
            return Some(recording.name(leaf).to_owned());
        }
        assert!(
            leaf.name_reason.is_some(),
            "{} has a name",
            recording.name(leaf)
        );
        symbols
            .iter()
            .find(|(_, range)| range.contains(&leaf.address))
            .map(|(name, _)| name.clone())
    });
    recording.assert_ledgers_balance();
    assert_eq!(recording.incomplete(), 0);
    assert_count(&recording);
    if !strip {
        let whole = recording
            .on_cpu()
            .filter(|sample| recording.holds(sample, "timed") && recording.holds(sample, "main"));
        assert!(whole.count() * 100 >= recording.on_cpu().count() * 99);
    }
}

/// Names and addresses by nm.
fn symbols_of(program: &std::path::Path) -> Vec<(String, std::ops::Range<u64>)> {
    let output = Command::new("nm")
        .arg("-S")
        .arg(program)
        .output()
        .expect("nm is installed");
    let text = String::from_utf8(output.stdout).expect("ASCII");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let size = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.to_owned(), start..start + size))
        })
        .collect()
}

#[test]
fn c_functions_get_the_shares_that_they_say_without_frame_pointers() {
    c_shares_are_true(
        "shares-fomit",
        &["-fno-inline", "-fomit-frame-pointer"],
        false,
    );
}

#[test]
fn c_functions_get_the_shares_that_they_say_with_frame_pointers() {
    c_shares_are_true(
        "shares-fno-omit",
        &["-fno-inline", "-fno-omit-frame-pointer"],
        false,
    );
}

#[test]
fn functions_of_a_stripped_program_are_told_apart_by_their_addresses() {
    c_shares_are_true("shares-stripped", &["-fno-inline"], true);
}

/// Lua frames of a sample, innermost first, without the main chunk: name and line.
fn lua_chain<'a>(recording: &'a Recording, sample: &Sample) -> Vec<(&'a str, u32)> {
    recording
        .frames(sample)
        .into_iter()
        .filter(|frame| frame.kind.is_lua() && recording.name(frame) != "(main chunk)")
        .map(|frame| (recording.name(frame), frame.line))
        .collect()
}

/// What calls what in shapes.lua, outermost first; a function's own line is marked with its name there, builtins have none.
const SHAPES: [&[&str]; 9] = [
    &["recursion", "recurse", "bottom"],
    &["resumes", "coroutine.wrap_aux", "in_coroutine"],
    &["reads", "computed"],
    &["adds", "added"],
    &["gives_any", "takes_any"],
    &["protects", "pcall", "protected"],
    &["replaces", "string.gsub", "replacement"],
    &["sorts", "table.sort", "less"],
    &["iterates", "next_one"],
];

fn every_shape_is_seen(mode: &str, milliseconds: &str) {
    let _turn = one_at_a_time();
    let script = programs().join("shapes.lua");
    let Some(mut program) = luajit("shapes.lua", &[mode, milliseconds]) else {
        return;
    };
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    let mut wrong = Vec::new();
    for shape in SHAPES {
        let expected = expected_chain(&script, shape);
        let chains: Vec<_> = recording
            .on_cpu()
            .map(|sample| (lua_chain(&recording, sample), sample))
            .filter(|(chain, _)| chain.first().is_some_and(|(name, _)| *name == "spin"))
            .filter(|(chain, _)| chain.last().is_some_and(|(name, _)| *name == shape[0]))
            .collect();
        let right = chains.iter().filter(|(chain, _)| {
            chain.len() == expected.len() + 1
                && chain[1..]
                    .iter()
                    .zip(&expected)
                    .all(|((name, line), (known, at))| name == known && line == at)
        });
        let (right, all) = (right.count(), chains.len());
        eprintln!(
            "{}: {right} of {all} samples show exactly {expected:?}",
            shape[0]
        );
        if all < 80 || right * 100 < all * 99 {
            wrong.push(shape[0]);
            for (_, sample) in chains.iter().take(3) {
                eprintln!("    {}", recording.text(sample));
            }
        }
    }
    assert!(wrong.is_empty(), "not seen as they ran: {wrong:?}");
    assert_recursion_counts_once(&recording);
}

/// Callers of `spin`, innermost first.
fn expected_chain<'a>(script: &std::path::Path, shape: &[&'a str]) -> Vec<(&'a str, u32)> {
    let mut chain: Vec<(&str, u32)> = Vec::new();
    for &name in shape {
        match name {
            "recurse" => chain.extend([("recurse", marked_line(script, "recurse")); 49]),
            "bottom" => chain.push(("recurse", marked_line(script, "bottom"))),
            builtin if builtin.contains('.') || builtin == "pcall" => chain.push((builtin, 0)),
            name => chain.push((name, marked_line(script, name))),
        }
    }
    chain.reverse();
    chain
}

/// Fifty frames of one function in a stack are one inclusive count.
fn assert_recursion_counts_once(recording: &Recording) {
    let profile = &recording.profile;
    let mut weights = StackWeights::default();
    for sample in recording.on_cpu() {
        let (measure, weight) = Measure::of(sample.kind);
        assert_eq!(measure, Measure::OnCpu);
        weights.add(sample.stack.expect("a stack"), weight);
    }
    let groups = Groups::by(&profile.frames, |frame: &Frame| Some(frame.name));
    let costs = groups.roll_up(&profile.stacks, &weights);
    let rolled_up = costs
        .iter()
        .find(|(name, _)| profile.strings.get(*name) == "recurse")
        .map(|(_, cost)| cost.inclusive);
    let samples = recording
        .on_cpu()
        .filter(|sample| recording.holds(sample, "recurse"))
        .count();
    assert_eq!(rolled_up, Some(samples as u64));
}

#[test]
fn every_way_of_calling_is_seen_with_its_lines_when_interpreted() {
    every_shape_is_seen("off", "2");
}

#[test]
fn every_way_of_calling_is_seen_with_its_lines_when_compiled() {
    every_shape_is_seen("on", "1");
}
