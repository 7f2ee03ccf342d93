//! Categories of samples: from the VM's state and the position on the stack, held against the names of a build with symbols, against
//! work whose mix is known, and against a real gateway on stripped libraries.

mod support;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use support::program::{Program, compile, programs};
use support::recording::{Plan, Recording, one_at_a_time, record_to_the_end};
use throughline_luabuilds::{Build, NEWEST, Obtained, luajit_src, ready};
use throughline_profile::{Category, Frame, FrameKind, Sample};

const RATE_HZ: u32 = 997;
/// From this share of agreement on the category from the VM's state is believed.
const AGREEMENT_MIN: f64 = 0.98;

/// Records kinds.lua in a build; `None` after a word on standard error where the machine cannot.
fn record_kinds(build: &Build, work: &[&str]) -> Option<Recording> {
    let script = programs().join("kinds.lua");
    let mut program = Program::start(
        build.library_path.as_path(),
        &[&[script.to_str().expect("a path of this test")], work].concat(),
    );
    program.expect_line("ready");
    record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program)
}

/// What names say of a sample: the functions of LuaJIT's source files have prefixes of their own. `None` where a name is missing.
fn by_names(recording: &Recording, sample: &Sample) -> Option<&'static str> {
    let frames = recording.frames(sample);
    let leaf = frames.first()?;
    match leaf.kind {
        FrameKind::Kernel => return Some("kernel"),
        FrameKind::Jit => return Some("jit"),
        // Subroutines: some are the interpreter's, some a trace's, some leave one.
        FrameKind::Interpreter if recording.name(leaf) == "lj_vm_*" => return None,
        FrameKind::Interpreter => return Some("interpreter"),
        _ => {}
    }
    let in_vm = |frame: &&&Frame| matches!(frame.kind, FrameKind::Interpreter | FrameKind::Jit);
    let vm = frames.iter().find(in_vm);
    let section: Vec<&str> = frames
        .iter()
        .take_while(|frame| !in_vm(frame))
        .map(|frame| recording.name(frame))
        .collect();
    let any = |prefixes: &[&str]| {
        section
            .iter()
            .any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    // What runs under the compiler was called by lj_vm_cpcall; its callers outside are the compiler's as well.
    if any(&["lj_gc_", "gc_"]) {
        Some("gc")
    } else if any(&[
        "trace_",
        "lj_trace_",
        "lj_record_",
        "lj_opt_",
        "lj_asm_",
        "lj_dispatch_",
        "lj_snap_",
        "lj_mcode_",
        "rec_",
        "recff_",
        "lj_ir_",
        "lj_ffrecord_",
        "lj_crecord_",
        "asm_",
        "ra_",
        "loop_",
        "cploop_",
        "fori_",
    ]) {
        Some("jit_compiler")
    } else if any(&["lj_alloc_", "lj_mem_"]) {
        Some("allocator")
    } else if any(&[
        "lj_ccall_",
        "lj_cconv_",
        "lj_cdata_",
        "lj_ctype_",
        "lj_carith_",
        "lj_cf_ffi_",
        "lj_clib_",
        "lj_cparse",
        "cp_",
        "lj_vm_ffi_call",
    ]) {
        Some("ffi")
    } else if recording
        .module(leaf)
        .is_some_and(|path| path.contains("libc") || path.contains("libm") || path == "[vdso]")
    {
        Some("libc")
    } else {
        // The program holds LuaJIT and a main function, or three of a test.
        let program = recording.module(leaf);
        let is_lua = |frame: &&&Frame| {
            recording.module(frame) == program
                && !["main", "work", "cpu"].contains(&recording.name(frame))
        };
        let c: Vec<_> = frames.iter().take_while(|frame| !in_vm(frame)).collect();
        let run: Vec<_> = c.iter().take_while(|frame| is_lua(frame)).collect();
        let Some(entry) = run.last().map(|frame| recording.name(frame)) else {
            return Some("other");
        };
        let by_api = entry.starts_with("lua_") || entry.starts_with("luaL_");
        let reaches_vm = run.len() == c.len() && vm.is_some();
        Some(if by_api && !reaches_vm {
            "lua_c_api"
        } else {
            "lua_runtime"
        })
    }
}

fn category(sample: &Sample) -> Category {
    sample
        .category
        .expect("every running sample has a category")
        .category
}

fn shares(recording: &Recording) -> BTreeMap<&'static str, f64> {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    for sample in recording.on_cpu() {
        *counts.entry(category(sample).name()).or_default() += 1.0;
    }
    let all = recording.on_cpu().count() as f64;
    counts.values_mut().for_each(|count| *count /= all);
    counts
}

/// How many samples have names that tell a category, and how many of those are in that category by the VM's state.
fn agreement(recording: &Recording, what: &str) -> (u32, u32) {
    let mut disagreements: BTreeMap<(&str, &str, String), u64> = BTreeMap::new();
    let (mut named, mut equal) = (0, 0);
    for sample in recording.on_cpu() {
        let Some(by_names) = by_names(recording, sample) else {
            continue;
        };
        named += 1;
        let by_state = category(sample).name();
        if by_names == by_state {
            equal += 1;
            continue;
        }
        let frames = recording.frames(sample);
        let stack: Vec<&str> = frames
            .iter()
            .take(4)
            .map(|frame| recording.name(frame))
            .collect();
        *disagreements
            .entry((by_names, by_state, stack.join(" < ")))
            .or_default() += 1;
    }
    let all = recording.on_cpu().count();
    eprintln!(
        "{what}: {equal} of {named} named samples agree, of {all}; {:.3?}",
        shares(recording)
    );
    let mut worst: Vec<_> = disagreements.into_iter().collect();
    worst.sort_by_key(|&(_, count)| Reverse(count));
    for ((by_names, by_state, stack), count) in worst.into_iter().take(8) {
        eprintln!("    {count} by names {by_names}, by state {by_state}: {stack}");
    }
    assert!(
        f64::from(named) >= 0.8 * all as f64,
        "{what}: names are missing"
    );
    (named, equal)
}

/// Programs that exercise each category, one after the other.
fn state_agrees_with_names(obtained: Obtained) {
    let _turn = one_at_a_time();
    let Some(build) = ready(obtained) else { return };
    let (mut named, mut equal) = (0, 0);
    for work in [
        "churn=0.8",
        "strings=0.8",
        "ffi=0.8",
        "compiler=1.2",
        "interpreter=0.2",
        "jit=0.2",
    ] {
        let Some(recording) = record_kinds(&build, &[work]) else {
            return;
        };
        recording.assert_ledgers_balance();
        let (n, e) = agreement(&recording, &format!("{} {work}", build.name));
        named += n;
        equal += e;
    }
    let share = f64::from(equal) / f64::from(named);
    eprintln!("{}: {:.2} % of {named} agree", build.name, 100.0 * share);
    assert!(share >= AGREEMENT_MIN, "{}: {share}", build.name);
}

macro_rules! builds {
    ($($name:ident: $build:expr;)*) => {
        $(#[test]
        fn $name() {
            state_agrees_with_names($build);
        })*
    };
}

builds! {
    state_and_names_agree_in_openresty_2024: luajit_src("210.4.8");
    state_and_names_agree_in_mainline_2022: luajit_src("210.0.0");
    state_and_names_agree_in_the_newest_mainline: luajit_src(NEWEST);
}

#[test]
fn work_through_the_c_api_is_told_in_a_program_that_holds_luajit() {
    let Some(build) = ready(luajit_src("210.4.8")) else {
        return;
    };
    let archive = build.library_path.with_file_name("libluajit.a");
    let archive = archive.to_str().expect("a path of this test");
    let _turn = one_at_a_time();
    let flags = [
        "-O1",
        "-rdynamic",
        "-Wl,--whole-archive",
        archive,
        "-Wl,--no-whole-archive",
        "-Wl,--no-as-needed",
        "-lm",
        "-ldl",
    ];
    let path = compile("api.c", "linked", &flags);
    let mut program = Program::start(path, &["1.5"]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let shares = shares(&recording);
    eprintln!("{shares:.3?}");
    let samples = recording.on_cpu().count();
    // Outside of Lua the VM tells no state, so the collector's steps are the API's here; names know better.
    let (mut api, mut told) = (0, 0);
    for sample in recording.on_cpu() {
        if by_names(&recording, sample) == Some("lua_c_api") {
            api += 1;
            told += usize::from(category(sample) == Category::LuaCApi);
        }
    }
    assert!(
        api * 5 > samples,
        "{api} of {samples} samples are in the API"
    );
    assert!(told as f64 >= AGREEMENT_MIN * api as f64, "{told} of {api}");
}

#[test]
fn a_known_mix_of_interpreter_and_jit_code_is_told_as_it_is() {
    let _turn = one_at_a_time();
    let Some(build) = ready(luajit_src("210.4.8")) else {
        return;
    };
    let Some(recording) = record_kinds(&build, &["interpreter=0.6", "jit=1.4"]) else {
        return;
    };
    let mut shares = shares(&recording);
    eprintln!("{shares:.3?}");
    // Interrupts and faults hit both kinds of work.
    let user = 1.0 - shares.get("kernel").copied().unwrap_or(0.0);
    shares.values_mut().for_each(|share| *share /= user);
    for (name, known) in [("interpreter", 0.3), ("jit", 0.7)] {
        let told = shares.get(name).copied().unwrap_or(0.0);
        assert!((told - known).abs() <= 0.03, "{name}: {told} for {known}");
    }
}
