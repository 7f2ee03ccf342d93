//! Waits whose length, place and cause are known, measured against the program's and the scheduler's own accounts.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use support::program::{Program, compile, marked_line, programs};
use support::recording::{Plan, Recording, one_at_a_time, record, record_to_the_end};
use throughline_profile::{FrameKind, SwitchReason};
use throughline_record::{RecordPlan, ThreadTimes};

/// Part of a wait by which the recording may differ from what the program says.
const WAIT_TOLERANCE: f64 = 0.05;

fn waits(mode: &[&str]) -> Program {
    let path = compile("waits.c", &format!("waits-{}", mode[0]), &[]);
    let mut program = Program::start(path, mode);
    program.expect_line("ready");
    program
}

/// Every function's waits against what it says; returns them by name.
fn assert_waits(recording: &Recording, truth: &[(String, f64)]) {
    assert!(!truth.is_empty());
    for (name, told) in truth {
        let (voluntary, preempted) = recording.waited_in(name);
        let recorded = voluntary + preempted;
        eprintln!(
            "{name}: the program waited {:.1} ms, recorded {:.1} ms ({:.1} ms of them preempted)",
            told / 1e6,
            recorded / 1e6,
            preempted / 1e6
        );
        let near = (recorded / told - 1.0).abs() <= WAIT_TOLERANCE;
        if !near {
            recording.print_stacks();
        }
        assert!(near, "{name}: {recorded} ns of {told} ns");
    }
    recording.assert_ledgers_balance();
    assert_no_time_is_counted_twice(recording);
}

/// What FlameGraph's users saw (its reports 144 and 150), more off-CPU time than threads x wall time, cannot be: the stretches
/// of one thread follow each other.
fn assert_no_time_is_counted_twice(recording: &Recording) {
    let mut stretches: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for (sample, off) in recording.off_cpu() {
        let tid = recording.profile.threads.get(sample.thread).tid;
        stretches
            .entry(tid)
            .or_default()
            .push((sample.time.0, sample.time.0 + off.duration.0));
    }
    for (tid, mut stretches) in stretches {
        stretches.sort_unstable();
        assert!(
            stretches.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "stretches of {tid} overlap"
        );
    }
    let total: u64 = recording.off_cpu().map(|(_, off)| off.duration.0).sum();
    let threads = recording.threads.len() as u64;
    assert!(total <= threads * recording.profile.capture.duration.0);
}

#[test]
fn sleeps_of_a_c_program_are_measured_where_they_are() {
    let _turn = one_at_a_time();
    let mut program = waits(&["sleep"]);
    let Some(recording) = record_to_the_end(Plan::off_cpu(), &mut program) else {
        return;
    };
    assert_waits(&recording, &program.numbers());
    let (naps, _) = recording.waited_in("naps");
    assert!(
        naps >= 30.0 * 20e6,
        "a sleep is never shorter than asked for: {naps}"
    );
}

fn lua_sleeps_are_measured(mode: &str) {
    let _turn = one_at_a_time();
    let script = programs().join("sleeps.lua");
    let mut program = Program::start(
        "luajit",
        &[script.to_str().expect("a path of this test"), mode],
    );
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::off_cpu(), &mut program) else {
        return;
    };
    assert_waits(&recording, &program.numbers());
    for name in ["naps", "dozes"] {
        let line = marked_line(&script, name);
        let waits: Vec<_> = recording
            .off_cpu()
            .filter(|(sample, off)| {
                off.reason == SwitchReason::Voluntary && recording.holds(sample, name)
            })
            .collect();
        let elsewhere = waits.iter().find(|(sample, _)| {
            let frames = recording.frames(sample);
            let lua = frames.iter().find(|frame| frame.kind == FrameKind::Lua);
            !lua.is_some_and(|frame| {
                recording.name(frame) == name
                    && frame.line.abs_diff(line) <= u32::from(mode == "on")
            })
        });
        assert!(
            elsewhere.is_none(),
            "not at line {line}: {:?}",
            elsewhere.map(|(sample, _)| recording.text(sample))
        );
    }
}

#[test]
fn sleeps_of_interpreted_lua_are_measured_at_their_line() {
    lua_sleeps_are_measured("off");
}

/// A trace is shown by the line at which it starts, here the loop's, one above the call.
#[test]
fn sleeps_of_compiled_lua_are_measured_in_their_function() {
    lua_sleeps_are_measured("on");
}

#[test]
fn a_wait_for_a_lock_names_who_held_it() {
    let _turn = one_at_a_time();
    let mut program = waits(&["mutex"]);
    let Some(recording) = record_to_the_end(Plan::off_cpu(), &mut program) else {
        return;
    };
    assert_waits(&recording, &program.numbers());
    let waits: Vec<_> = recording
        .off_cpu()
        .filter(|(sample, off)| {
            off.reason == SwitchReason::Voluntary && recording.holds(sample, "wait_for_lock")
        })
        .collect();
    let by_holder = waits.iter().filter(|(_, off)| {
        off.waker.is_some_and(|waker| {
            let waker = recording.profile.threads.get(waker);
            recording.profile.strings.get(waker.comm) == "holder" && waker.pid == program.pid()
        })
    });
    let by_holder = by_holder.count();
    eprintln!(
        "{by_holder} of {} waits for the lock were ended by its holder",
        waits.len()
    );
    assert_eq!(by_holder, waits.len());
}

#[test]
fn a_wait_for_a_pipe_is_measured_where_it_is() {
    let _turn = one_at_a_time();
    let mut program = waits(&["pipe"]);
    let Some(recording) = record_to_the_end(Plan::off_cpu(), &mut program) else {
        return;
    };
    assert_waits(&recording, &program.numbers());
    let (sample, off) = recording
        .off_cpu()
        .find(|(sample, _)| recording.holds(sample, "read_pipe"))
        .expect("a wait in read_pipe");
    assert!(
        recording.text(sample).contains("pipe_read"),
        "{}",
        recording.text(sample)
    );
    assert!(!off.idle, "a pipe is waited for as for a result");
}

/// The first two numbers of schedstat: run time, time in the run queue, in ns.
fn schedstat(pid: u32, tid: u32) -> Option<(f64, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut numbers = text.split(' ').map(|number| number.parse::<f64>().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[test]
fn a_busy_program_beside_another_on_its_core_is_preempted() {
    let _turn = one_at_a_time();
    let path = compile("waits.c", "waits-busy", &[]);
    let mut other = Program::start_on_core(0, &path, &["busy", "20"]);
    let mut program = Program::start_on_core(0, &path, &["busy", "0.5"]);
    other.expect_line("ready");
    program.expect_line("ready");
    other.go();
    let plan = RecordPlan {
        min_block: Duration::from_micros(100),
        ..Plan::off_cpu()
    };
    let pid = program.pid();
    let plan = RecordPlan {
        pids: vec![pid],
        ..plan
    };
    let (mut queued_before, mut queued) = (None, None);
    let recording = record(
        &plan,
        || {
            queued_before = schedstat(pid, pid);
            program.go();
        },
        |_| {
            queued = schedstat(pid, pid).or(queued);
            false
        },
    );
    let Some(recording) = recording else { return };
    let (voluntary, preempted) = recording.waited_in("spin_ms");
    let queued = queued.expect("schedstat").1 - queued_before.expect("schedstat").1;
    eprintln!(
        "preempted for {:.1} ms, voluntary {:.1} ms; the scheduler says {:.1} ms in the run queue",
        preempted / 1e6,
        voluntary / 1e6,
        queued / 1e6
    );
    assert!(
        preempted > 0.3e9,
        "one second of CPU on a shared core: {preempted} ns"
    );
    assert!(
        voluntary < 0.02 * preempted,
        "it never waits by itself: {voluntary} ns"
    );
    // The last reading of schedstat is up to 50 ms before the end, and what ran on either side of the busy loop is in it too.
    assert!((preempted - queued).abs() < 0.05 * queued + 50e6);
    recording.assert_ledgers_balance();
    assert_no_time_is_counted_twice(&recording);
}

/// Time that the account explains: off the core by the switches, on it by the scheduler's own account.
fn explained(times: &ThreadTimes) -> f64 {
    (times.kept + times.short + times.long + times.open + times.unseen + times.run).0 as f64
}

#[test]
fn waiting_and_run_time_add_up_to_wall_time_for_each_thread() {
    let _turn = one_at_a_time();
    let mut program = waits(&["mixed"]);
    let Some(recording) = record_to_the_end(Plan::both(997), &mut program) else {
        return;
    };
    let mut seen = 0;
    for times in &recording.threads {
        let observed = times.observed.0 as f64;
        let share = explained(times) / observed;
        eprintln!(
            "{times:?}: {:.3} % of wall time is explained",
            100.0 * share
        );
        if times.observed.0 > 500_000_000 {
            seen += 1;
            assert!((share - 1.0).abs() <= 0.01, "{times:?}");
        }
        let sampled = recording
            .on_cpu()
            .filter(|sample| recording.profile.threads.get(sample.thread).tid == times.tid)
            .count();
        if times.run.0 > 200_000_000 {
            let ratio = sampled as f64 / (times.run.0 as f64 / 1e9 * 997.0);
            eprintln!("    {sampled} samples, {ratio:.3} of rate x run time");
            assert!(
                (ratio - 1.0).abs() <= 0.03,
                "{sampled} samples for {:?}",
                times.run
            );
        }
    }
    // The first thread and the two that it starts.
    assert_eq!(seen, 3);
    assert_no_time_is_counted_twice(&recording);
}

#[test]
fn threads_that_sleep_or_run_all_the_time_have_an_account_too() {
    let _turn = one_at_a_time();
    let path = compile("waits.c", "waits-busy", &[]);
    let mut sleeper = Program::start(&path, &["sleep"]);
    let mut runner = Program::start(&path, &["busy", "10"]);
    sleeper.expect_line("ready");
    runner.expect_line("ready");
    runner.go();
    let plan = RecordPlan {
        pids: vec![sleeper.pid(), runner.pid()],
        duration: Some(Duration::from_secs(1)),
        ..Plan::off_cpu()
    };
    let Some(recording) = record(&plan, || (), |_| false) else {
        return;
    };
    let of = |pid: u32| {
        let times = recording.threads.iter().find(|times| times.pid == pid);
        times.unwrap_or_else(|| panic!("{pid} has no account"))
    };
    let (asleep, running) = (of(sleeper.pid()), of(runner.pid()));
    for times in [asleep, running] {
        let share = explained(times) / times.observed.0 as f64;
        eprintln!(
            "{times:?}: {:.3} % of wall time is explained",
            100.0 * share
        );
        assert!((share - 1.0).abs() <= 0.01, "{times:?}");
        assert!(times.observed.0 > 900_000_000, "{times:?}");
    }
    assert_eq!(asleep.run.0, 0);
    assert!(running.run.0 > 0);
}
