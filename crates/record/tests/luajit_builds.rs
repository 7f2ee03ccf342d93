//! Every build of LuaJIT that the registries offer, recorded; those that cannot be read, named with the reason.

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use support::program::{Program, compile, marked_line, programs};
use support::recording::{Plan, Recording, one_at_a_time, record, record_for, record_to_the_end};
use throughline_luabuilds::{
    Build, Fork, LupaModule, NEWEST, Obtained, debian_library, debian_program, luajit_src,
    luajit_src_compact, lupa, ready,
};
use throughline_profile::{FrameKind, LuaContext, Sample};
use throughline_record::RecordPlan;

/// A program is recorded this long; ten times as many samples as are asserted are then to be had on an idle machine.
const LENGTH: Duration = Duration::from_millis(800);
const RATE_HZ: u32 = 997;

/// Starts laps.lua in a build and records it.
fn record_laps(build: &Build, mode: &str) -> Option<Recording> {
    let script = programs().join("laps.lua");
    let child = build
        .run(&script, &[mode, "20"])
        .unwrap_or_else(|error| panic!("{}: {error}", build.name));
    let program = Program::of_child(child);
    // It compiles and loads its libraries first.
    std::thread::sleep(Duration::from_millis(400));
    record_for(Plan::on_cpu(RATE_HZ), &[program.pid()], LENGTH)
}

/// Callers of `work`, innermost first.
fn chain<'a>(recording: &'a Recording, sample: &Sample) -> Vec<(&'a str, u32)> {
    recording
        .frames(sample)
        .into_iter()
        .filter(|frame| frame.kind.is_lua())
        .skip_while(|frame| recording.name(frame) != "work")
        .map(|frame| (recording.name(frame), frame.line))
        .collect()
}

/// Records laps.lua in a build, interpreted and compiled.
fn lua_frames_are_right(obtained: Obtained) {
    let _turn = one_at_a_time();
    let Some(build) = ready(obtained) else { return };
    let script = programs().join("laps.lua");
    let line = |mark| marked_line(&script, mark);
    let expected = [
        ("work", line("work")),
        ("lap", line("lap")),
        ("__index", line("__index")),
        ("drive", line("drive")),
        ("pcall", 0),
    ];
    for mode in ["off", "on"] {
        let Some(recording) = record_laps(&build, mode) else {
            return;
        };
        recording.assert_ledgers_balance();
        let all = recording.on_cpu().count();
        let chains: Vec<_> = recording
            .on_cpu()
            .map(|sample| chain(&recording, sample))
            .filter(|chain| !chain.is_empty())
            .collect();
        let right = chains
            .iter()
            .filter(|chain| chain.starts_with(&expected))
            .count();
        let incomplete = recording.incomplete();
        let vms: Vec<_> = recording
            .target()
            .lua_vms
            .iter()
            .map(|vm| (&vm.version, &vm.layout))
            .collect();
        eprintln!(
            "{} with the JIT {mode}: {right} of {} samples in `work` have the right Lua stack, of {all} {incomplete} are incomplete; {vms:?}",
            build.name,
            chains.len(),
        );
        let good = all >= 60
            && chains.len() * 100 >= all * 90
            && right * 100 >= chains.len() * 99
            && incomplete * 1000 <= all * 5;
        if !good {
            recording.print_stacks();
        }
        assert!(good, "{} with the JIT {mode}", build.name);
    }
}

macro_rules! builds {
    ($($name:ident: $build:expr;)*) => {
        $(#[test]
        fn $name() {
            lua_frames_are_right($build);
        })*
    };
}

builds! {
    lua_frames_of_debians_openresty_program_are_right: debian_program("luajit2", Fork::OpenResty);
    lua_frames_of_debians_mainline_program_are_right: debian_program("luajit", Fork::Mainline);
    lua_frames_of_debians_openresty_library_are_right: debian_library("libluajit2-5.1-2", Fork::OpenResty);
    lua_frames_of_debians_mainline_library_are_right: debian_library("libluajit-5.1-2", Fork::Mainline);
    lua_frames_of_the_luajit_inside_of_lupa_are_right: lupa(LupaModule::LuaJit21);
    lua_frames_of_luajit_src_210_0_are_right: luajit_src("210.0.0");
    lua_frames_of_luajit_src_210_1_are_right: luajit_src("210.1.0");
    lua_frames_of_luajit_src_210_4_are_right: luajit_src("210.4.8");
    lua_frames_of_luajit_src_210_5_are_right: luajit_src("210.5.0");
    lua_frames_of_luajit_src_210_6_are_right: luajit_src("210.6.0");
    lua_frames_of_the_newest_luajit_src_are_right: luajit_src(NEWEST);
}

/// What cannot be read is named, and C is recorded all the same.
fn is_named_as_unreadable(build: &Build, reason: &str) {
    let Some(recording) = record_laps(build, "off") else {
        return;
    };
    let target = recording.target();
    eprintln!("{}: {:?}", build.name, target.lua_unreadable);
    assert!(target.lua_vms.is_empty());
    assert!(
        target
            .lua_unreadable
            .as_ref()
            .is_some_and(|told| told.contains(reason)),
        "{:?}",
        target.lua_unreadable
    );
    let samples = recording.on_cpu().count();
    assert!(samples > 100);
    assert!(
        recording
            .on_cpu()
            .all(|sample| sample.lua != LuaContext::With)
    );
    let native = recording.on_cpu().filter(|sample| {
        recording
            .frames(sample)
            .iter()
            .any(|frame| frame.kind == FrameKind::Native)
    });
    assert_eq!(native.count(), samples);
    if recording.incomplete() * 100 > samples {
        recording.print_stacks();
    }
    assert!(
        recording.incomplete() * 100 <= samples,
        "{} of {samples}",
        recording.incomplete()
    );
    recording.assert_ledgers_balance();
}

#[test]
fn puc_lua_is_named_as_unreadable_and_its_c_frames_are_recorded() {
    let _turn = one_at_a_time();
    for module in [LupaModule::Lua51, LupaModule::Lua54] {
        let Some(build) = ready(lupa(module)) else {
            continue;
        };
        assert_eq!(build.fork, Fork::Puc);
        is_named_as_unreadable(&build, "PUC Lua");
    }
}

#[test]
fn luajit_with_32_bit_references_is_named_as_unreadable() {
    let _turn = one_at_a_time();
    if let Some(build) = ready(luajit_src_compact()) {
        is_named_as_unreadable(&build, "GC64");
    }
    if let Some(build) = ready(lupa(LupaModule::LuaJit20)) {
        is_named_as_unreadable(&build, "GC64");
    }
}

/// The host program with a LuaJIT library, waiting to be let to work.
fn host(name: &str, mode: &[&str]) -> Option<Program> {
    let build = ready(debian_library("libluajit2-5.1-2", Fork::OpenResty))?;
    let path = compile("host.c", name, &["-fno-inline"]);
    let script = programs().join("nested.lua");
    let library = build.library_path.to_str()?;
    let arguments: Vec<&str> = [library, script.to_str()?]
        .into_iter()
        .chain(mode.iter().copied())
        .collect();
    let mut program = Program::start(path, &arguments);
    program.expect_line("ready");
    Some(program)
}

/// Whether a stack holds these functions in this order, root first, with anything between them.
fn in_order(recording: &Recording, sample: &Sample, names: &[(&str, u32)]) -> bool {
    let mut frames = recording.frames(sample).into_iter().rev();
    names.iter().all(|&(name, line)| {
        frames.any(|frame| recording.name(frame) == name && (line == 0 || frame.line == line))
    })
}

/// Records a run of nested.lua; samples in `c_spin` must have the stack.
fn nesting_is_seen(name: &str, mode: &str, names: &[&str]) {
    let _turn = one_at_a_time();
    let Some(mut program) = host(name, &[mode]) else {
        return;
    };
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let script = programs().join("nested.lua");
    let expected: Vec<(&str, u32)> = names
        .iter()
        .map(|&name| {
            (
                name,
                if name.starts_with("c_") || name == "main" {
                    0
                } else {
                    marked_line(&script, name)
                },
            )
        })
        .collect();
    let spinning: Vec<_> = recording
        .on_cpu()
        .filter(|sample| recording.holds(sample, "c_spin"))
        .collect();
    let right = spinning
        .iter()
        .filter(|sample| in_order(&recording, sample, &expected))
        .count();
    eprintln!(
        "{mode}: {right} of {} samples show {expected:?}",
        spinning.len()
    );
    if spinning.len() < 300 || right * 1000 < spinning.len() * 995 {
        recording.print_stacks();
    }
    assert!(spinning.len() >= 300);
    assert!(right * 1000 >= spinning.len() * 995);
    assert_eq!(recording.incomplete(), 0);
    recording.assert_ledgers_balance();
}

#[test]
fn lua_called_by_c_called_by_lua_shows_both_segments() {
    nesting_is_seen(
        "host-nested",
        "outer",
        &["main", "outer", "c_middle", "inner", "c_spin"],
    );
}

#[test]
fn three_nested_lua_segments_are_seen_in_their_order() {
    nesting_is_seen(
        "host-deeper",
        "deeper",
        &[
            "main", "deeper", "c_middle", "outer", "c_middle", "inner", "c_spin",
        ],
    );
}

/// luaL_Buffer keeps its 8 KB on the C stack; a copy of less would be cut in it.
#[test]
fn a_lua_buffer_on_the_c_stack_does_not_cut_it() {
    nesting_is_seen(
        "host-buffered",
        "buffered",
        &["main", "buffered", "c_buffer", "inner", "c_spin"],
    );
}

fn several_vms_are_read(name: &str, mode: &str, threads: usize) {
    let _turn = one_at_a_time();
    let Some(mut program) = host(name, &[mode]) else {
        return;
    };
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let script = programs().join("nested.lua");
    let expected = [
        ("outer", marked_line(&script, "outer")),
        ("c_middle", 0),
        ("inner", marked_line(&script, "inner")),
        ("c_spin", 0),
    ];
    let spinning: Vec<_> = recording
        .on_cpu()
        .filter(|sample| recording.holds(sample, "c_spin"))
        .collect();
    let right = spinning
        .iter()
        .filter(|sample| in_order(&recording, sample, &expected))
        .count();
    let seen: BTreeSet<_> = spinning
        .iter()
        .map(|sample| recording.profile.threads.get(sample.thread).tid)
        .collect();
    eprintln!(
        "{mode}: {right} of {} samples show both segments, {} threads",
        spinning.len(),
        seen.len()
    );
    if right * 1000 < spinning.len() * 995 {
        recording.print_stacks();
    }
    assert_eq!(recording.target().lua_vms.len(), 2);
    assert!(spinning.len() >= 600);
    assert!(right * 1000 >= spinning.len() * 995);
    assert_eq!(seen.len(), threads);
}

#[test]
fn two_vms_on_one_thread_are_both_read() {
    several_vms_are_read("host-two", "two", 1);
}

#[test]
fn two_vms_on_two_threads_are_both_read() {
    several_vms_are_read("host-threads", "threads", 2);
}

/// As a gateway of another name has it that was built with its own LuaJIT, and stripped.
#[test]
fn a_vm_that_is_linked_into_a_stripped_program_is_read() {
    let Some(build) = ready(luajit_src("210.4.8")) else {
        return;
    };
    let archive = build.library_path.with_file_name("libluajit.a");
    let archive = archive.to_str().expect("a path of this test");
    let _turn = one_at_a_time();
    let flags = [
        "-fno-inline",
        "-DLINKED",
        "-s",
        "-Wl,--whole-archive",
        archive,
        "-Wl,--no-whole-archive",
        "-Wl,--no-as-needed",
        "-lm",
    ];
    let path = compile("host.c", "openresty", &flags);
    let script = programs().join("nested.lua");
    let mut program = Program::start(
        path,
        &["linked", script.to_str().expect("a path of this test")],
    );
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let expected = [
        ("outer", marked_line(&script, "outer")),
        ("inner", marked_line(&script, "inner")),
    ];
    let all = recording.on_cpu().count();
    let right = recording
        .on_cpu()
        .filter(|sample| in_order(&recording, sample, &expected))
        .count();
    eprintln!("{right} of {all} samples show both segments");
    if right * 100 < all * 97 {
        recording.print_stacks();
    }
    assert!(all >= 300 && right * 100 >= all * 97);
    assert_eq!(recording.incomplete(), 0);
    recording.assert_ledgers_balance();
}

#[test]
fn two_runtimes_of_lupa_in_two_threads_are_read() {
    let Some(build) = ready(lupa(LupaModule::LuaJit21)) else {
        return;
    };
    let modules = build.library_path.parent().and_then(|lupa| lupa.parent());
    let modules = modules
        .and_then(|path| path.to_str())
        .expect("a path of this test");
    let _turn = one_at_a_time();
    let (script, runner) = (
        programs().join("laps.lua"),
        programs().join("two_runtimes.py"),
    );
    let arguments = [
        &format!("PYTHONPATH={modules}"),
        "python3",
        runner.to_str().expect("a path of this test"),
        script.to_str().expect("a path of this test"),
    ];
    let mut program = Program::start("env", &arguments);
    program.expect_line("ready");
    let plan = RecordPlan {
        pids: vec![program.pid()],
        ..Plan::on_cpu(RATE_HZ)
    };
    let program = RefCell::new(program);
    let begin = || program.borrow_mut().go();
    let done = |_| program.borrow_mut().line_if_any().is_some();
    let Some(recording) = record(&plan, begin, done) else {
        return;
    };
    assert_eq!(recording.target().lua_vms.len(), 2);
    let working = |sample: &Sample| !chain(&recording, sample).is_empty();
    let threads: BTreeSet<_> = recording
        .on_cpu()
        .filter(|sample| working(sample))
        .map(|sample| recording.profile.threads.get(sample.thread).tid)
        .collect();
    let (all, right) = (
        recording.on_cpu().count(),
        recording.on_cpu().filter(|sample| working(sample)).count(),
    );
    eprintln!(
        "{right} of {all} samples work in Lua, on {} threads",
        threads.len()
    );
    if right * 100 < all * 85 {
        recording.print_stacks();
    }
    // The threads start and end in Python.
    assert!(all >= 300 && right * 100 >= all * 85);
    assert_eq!(threads.len(), 2);
    assert_eq!(recording.incomplete(), 0);
}
