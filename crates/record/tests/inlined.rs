//! Lua frames inside of machine code: what traces have inlined, in every build of LuaJIT.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::program::{Program, programs};
use support::recording::{Plan, Recording, one_at_a_time, record_for};
use throughline_luabuilds::{
    Build, Fork, LupaModule, NEWEST, Obtained, debian_library, debian_program, luajit_src, lupa,
    ready,
};
use throughline_profile::{Flags, FrameKind, LuaContext, Sample};

const LENGTH: Duration = Duration::from_millis(4000);
const RATE_HZ: u32 = 997;
const FUNCTIONS: [&str; 3] = ["alpha", "beta", "gamma"];
/// The functions called one after the other in one loop; on different ways through it, so that there are side traces; with
/// functions between them that are not compiled, so that traces are stitched; by a tail call.
const MODES: [&str; 4] = ["root", "side", "stitched", "tailed"];

/// A recording of inlined.lua, and how many ns a call of each function takes alone.
fn recorded(build: &Build, arguments: &[&str]) -> Option<(Recording, BTreeMap<String, f64>)> {
    let script = programs().join("inlined.lua");
    let child = build
        .run(&script, arguments)
        .unwrap_or_else(|error| panic!("{}: {error}", build.name));
    let mut program = Program::of_child(child);
    let mut alone = BTreeMap::new();
    loop {
        let line = program.line();
        match line.split_once(' ') {
            Some((name, ns)) => alone.insert(name.to_owned(), ns.parse().expect("a number")),
            None => break,
        };
    }
    let recording = record_for(Plan::on_cpu(RATE_HZ), &[program.pid()], LENGTH)?;
    recording.assert_ledgers_balance();
    Some((recording, alone))
}

fn in_machine_code(recording: &Recording, sample: &Sample) -> bool {
    let frames = recording.frames(sample);
    frames.iter().any(|frame| frame.kind == FrameKind::Jit)
}

fn flags(recording: &Recording) -> BTreeMap<&'static str, usize> {
    let of = |flag| {
        recording
            .on_cpu()
            .filter(|sample| sample.flags.contains(flag))
            .count()
    };
    Flags::NAMED
        .iter()
        .map(|&(flag, name)| (name, of(flag)))
        .filter(|&(_, count)| count > 0)
        .collect()
}

/// The loop that a sample runs in, and its innermost Lua function.
fn place<'a>(recording: &'a Recording, sample: &Sample) -> Option<(&'static str, &'a str)> {
    let innermost = recording.lua_function(sample)?;
    let frames = recording.frames(sample);
    let mut names = frames.iter().map(|frame| recording.name(frame));
    names.find_map(|name| {
        let mode = MODES.iter().find(|mode| name == format!("loops.{mode}"));
        mode.map(|&mode| (mode, innermost))
    })
}

/// Self shares of the three functions in one loop, in percent of what they have in machine code together, and of how many
/// samples. The loop's own work, that of entering and leaving traces, and the library are no part of what the program measured.
fn self_shares(recording: &Recording, mode: &str) -> (BTreeMap<String, f64>, usize) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for sample in recording.on_cpu() {
        let frames = recording.frames(sample);
        let leaf = frames.first().map(|frame| frame.kind);
        match place(recording, sample) {
            Some((of, name)) if of == mode && leaf == Some(FrameKind::Jit) => {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    counts.retain(|name, _| FUNCTIONS.contains(&name.as_str()));
    let all: usize = counts.values().sum();
    let share = |count| 100.0 * count as f64 / all as f64;
    let shares = counts.into_iter().map(|(name, count)| (name, share(count)));
    (shares.collect(), all)
}

fn shares_are_right(obtained: Obtained) {
    let _turn = one_at_a_time();
    let Some(build) = ready(obtained) else { return };
    let Some((recording, alone)) = recorded(&build, &["20"]) else {
        return;
    };
    let (mut compiled, mut bare) = (0, 0);
    for sample in recording
        .on_cpu()
        .filter(|sample| in_machine_code(&recording, sample))
    {
        compiled += 1;
        bare += usize::from(sample.lua != LuaContext::With);
    }
    let samples = recording.on_cpu().count();
    eprintln!(
        "{}: {samples} samples, {compiled} in machine code, {bare} of them without Lua frames; {:?}",
        build.name,
        flags(&recording)
    );
    let total: f64 = alone.values().sum();
    let mut worst = f64::MIN;
    for mode in MODES {
        let (shares, of) = self_shares(&recording, mode);
        let mut off: f64 = 0.0;
        for name in FUNCTIONS {
            let found = shares.get(name).copied().unwrap_or(0.0);
            off = off.max((100.0 * alone[name] / total - found).abs());
        }
        eprintln!("    {mode}: {shares:.1?} of {of}, off by {off:.1} points from {alone:.0?}");
        // One standard deviation of a share of one half.
        let chance = 50.0 / (of as f64).sqrt();
        // What a stitched trace costs to enter and to leave is no part of what the functions were measured with, and a core
        // that waits for it is seen in the function that follows.
        let allowed = if mode == "stitched" { 12.0 } else { 5.0 };
        worst = worst.max(off - chance - allowed);
    }
    let good = bare == 0 && compiled * 10 >= samples * 7 && worst <= 0.0;
    if !good {
        recording.print_stacks();
    }
    assert!(good);
}

macro_rules! builds {
    ($($name:ident: $build:expr;)*) => {
        $(#[test]
        fn $name() {
            shares_are_right($build);
        })*
    };
}

builds! {
    self_shares_of_inlined_functions_are_right_in_debians_openresty_program: debian_program("luajit2", Fork::OpenResty);
    self_shares_of_inlined_functions_are_right_in_debians_mainline_program: debian_program("luajit", Fork::Mainline);
    self_shares_of_inlined_functions_are_right_in_debians_openresty_library: debian_library("libluajit2-5.1-2", Fork::OpenResty);
    self_shares_of_inlined_functions_are_right_in_debians_mainline_library: debian_library("libluajit-5.1-2", Fork::Mainline);
    self_shares_of_inlined_functions_are_right_inside_of_lupa: lupa(LupaModule::LuaJit21);
    self_shares_of_inlined_functions_are_right_in_luajit_src_210_0: luajit_src("210.0.0");
    self_shares_of_inlined_functions_are_right_in_luajit_src_210_1: luajit_src("210.1.0");
    self_shares_of_inlined_functions_are_right_in_luajit_src_210_4: luajit_src("210.4.8");
    self_shares_of_inlined_functions_are_right_in_luajit_src_210_5: luajit_src("210.5.0");
    self_shares_of_inlined_functions_are_right_in_luajit_src_210_6: luajit_src("210.6.0");
    self_shares_of_inlined_functions_are_right_in_the_newest_luajit_src: luajit_src(NEWEST);
}

/// Traces come and go every few ms, so many are gone when they are read. No function may then be named where it cannot be.
#[test]
fn while_traces_are_flushed_no_function_is_named_that_cannot_run_there() {
    let _turn = one_at_a_time();
    for build in [
        luajit_src("210.4.8"),
        luajit_src("210.1.0"),
        luajit_src(NEWEST),
    ]
    .into_iter()
    .filter_map(ready)
    {
        let Some((recording, _)) = recorded(&build, &["20", "flush"]) else {
            return;
        };
        let (mut seen, mut compiled, mut wrong) = (0, 0, 0);
        for sample in recording.on_cpu() {
            let compiled_here = in_machine_code(&recording, sample);
            compiled += usize::from(compiled_here);
            assert!(
                !compiled_here || sample.lua == LuaContext::With,
                "{}",
                recording.text(sample)
            );
            let lua: Vec<_> = recording
                .frames(sample)
                .into_iter()
                .filter(|frame| frame.kind == FrameKind::Lua)
                .collect();
            let names: Vec<&str> = lua.iter().map(|frame| recording.name(frame)).collect();
            let Some(last) = names.iter().position(|name| name.starts_with("loops.")) else {
                continue;
            };
            seen += 1;
            let caller = names[last];
            let right = match &names[..last] {
                [] | ["alpha" | "beta" | "gamma"] => true,
                ["delta"] | ["gamma", "delta"] => caller == "loops.tailed",
                _ => false,
            };
            let called_where_it_runs = lua.iter().take(last).all(|frame| {
                frame.line == 0 || (frame.first_line..frame.first_line + 60).contains(&frame.line)
            });
            if !right || !called_where_it_runs {
                wrong += 1;
                eprintln!("wrong: {}", recording.text(sample));
            }
        }
        eprintln!(
            "{}: {seen} samples in loops, {compiled} in machine code, {wrong} wrong; {:?}",
            build.name,
            flags(&recording)
        );
        assert!(seen > 200 && compiled > 50);
        assert_eq!(wrong, 0);
    }
}
