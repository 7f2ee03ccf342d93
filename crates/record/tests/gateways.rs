//! The labs' gateways under load: real nginx with LuaJIT, whose faults are known.
//!
//! `THROUGHLINE_LONG_TESTS=1` records for 30 s instead of 8.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use support::recording::{Plan, Recording, one_at_a_time, record_for};
use throughline_analyses::rank::{OffCpuRank, OnCpuRank, RankBy, RankPlan, RankReport, rank};
use throughline_experiment::lab::{self, LabLoad, LabPlan, LoadCommand, Ready};
use throughline_profile::{CaptureKind, Flags, LuaContext};
use throughline_record::RecordPlan;

/// Of a thousand samples as many must be complete, and of those in Lua as many must show it.
const COMPLETE_PER_MILLE: usize = 995;

fn length() -> Duration {
    Duration::from_secs(if std::env::var_os("THROUGHLINE_LONG_TESTS").is_some() {
        30
    } else {
        8
    })
}

/// A running lab; it ends with this value.
struct Lab {
    ready: Ready,
    stop: Arc<AtomicBool>,
    runner: Option<JoinHandle<()>>,
}

impl Lab {
    /// Starts a lab, or says what the machine lacks.
    fn start(name: &str, fixed: bool) -> Option<Self> {
        let plan = LabPlan {
            name: name.to_owned(),
            fixed,
            workers: None,
            load: LabLoad::Closed,
            load_command: LoadCommand {
                program: load_program(),
                arguments: Vec::new(),
            },
            duration: Some(Duration::from_secs(90)),
            port: None,
            directory: None,
            nginx: None,
            prelude: None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, ready) = channel();
        let runner = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let tell = sender.clone();
                let told = lab::run(
                    &plan,
                    |ready| {
                        let _ = tell.send(Ok(ready.clone()));
                    },
                    &stop,
                );
                if let Err(error) = told {
                    let _ = sender.send(Err(error.to_string()));
                }
            }
        });
        match ready.recv().expect("the lab's thread answers") {
            Ok(ready) => {
                // What is compiled at the first requests is no part of the lab.
                thread::sleep(Duration::from_secs(1));
                Some(Self {
                    ready,
                    stop,
                    runner: Some(runner),
                })
            }
            Err(why) => {
                eprintln!("SKIPPED: lab {name}: {why}");
                None
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(runner) = self.runner.take() {
            let _ = runner.join();
        }
    }
}

/// The example that cargo builds together with the tests.
fn load_program() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let directory = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("deps lie in the profile's directory");
    let program = directory.join("examples/lab_load");
    assert!(
        program.is_file(),
        "build it first: cargo build -p throughline-record --example lab_load"
    );
    program
}

fn rank_plan(kind: CaptureKind, by: RankBy) -> RankPlan {
    RankPlan {
        kind,
        by,
        limit: None,
        pid: None,
    }
}

fn on_cpu_rank(recording: &Recording) -> OnCpuRank {
    match rank(
        &recording.profile,
        rank_plan(CaptureKind::OnCpu, RankBy::Inclusive),
    ) {
        Ok(RankReport::OnCpu(rank)) => rank,
        other => panic!("{other:?}"),
    }
}

fn off_cpu_rank(recording: &Recording) -> OffCpuRank {
    match rank(
        &recording.profile,
        rank_plan(CaptureKind::OffCpu, RankBy::Inclusive),
    ) {
        Ok(RankReport::OffCpu(rank)) => rank,
        other => panic!("{other:?}"),
    }
}

/// Native completeness and Lua context of the on-CPU samples, with every exception printed.
fn assert_stacks_are_whole(recording: &Recording) {
    let all = recording.on_cpu().count();
    let incomplete = recording.incomplete();
    let guessed = recording
        .on_cpu()
        .filter(|sample| sample.flags.contains(Flags::GUESSED_FRAME))
        .count();
    let inside = recording
        .on_cpu()
        .filter(|sample| sample.lua.inside_lua())
        .count();
    let with = recording
        .on_cpu()
        .filter(|sample| sample.lua == LuaContext::With)
        .count();
    eprintln!(
        "{all} samples, {incomplete} incomplete, {guessed} with a guessed frame; {inside} inside of Lua, {with} with Lua frames; {}",
        recording.profile.ledger
    );
    for sample in recording.on_cpu() {
        let whole = !sample.flags.contains(Flags::STACK_TRUNCATED)
            && !sample.flags.contains(Flags::NATIVE_UNWIND_INCOMPLETE);
        if !whole || (sample.lua.inside_lua() && sample.lua != LuaContext::With) {
            eprintln!(
                "    {} state {:?} flags={} {}",
                sample.lua.as_str(),
                sample.vm_state,
                sample.flags.0,
                recording.text(sample)
            );
        }
    }
    assert!(all > 300, "{all} samples");
    assert!(incomplete * 1000 <= all * (1000 - COMPLETE_PER_MILLE));
    // In the instructions by which Lua is entered and left there is no Lua frame; a few samples more or less hit them.
    let missing = inside - with;
    assert!(missing <= 4 || missing * 1000 <= inside * (1000 - COMPLETE_PER_MILLE));
    assert!(with * 4 > all, "a gateway that works in Lua");
}

#[test]
fn a_loaded_gateways_stacks_are_whole_and_its_lua_is_seen() {
    let _turn = one_at_a_time();
    let Some(lab) = Lab::start("global-rules", false) else {
        return;
    };
    let Some(recording) = record_for(Plan::both(499), &lab.ready.pids.workers, length()) else {
        return;
    };
    recording.assert_ledgers_balance();
    assert_stacks_are_whole(&recording);
    let rank = on_cpu_rank(&recording);
    let row = rank.lua.iter().find(|row| {
        row.function.ends_with("filter")
            && row
                .source
                .as_ref()
                .is_some_and(|source| source.contains("plugin.lua"))
    });
    let row = row.expect("the rebuild of the plugin list is ranked");
    eprintln!(
        "{} {:?}: {:.1} % inclusive",
        row.function,
        row.source,
        100.0 * row.cost.inclusive_share
    );
    assert!(row.cost.inclusive_share > 0.15);
}

/// Blocked time in a kernel wait that the log's function asked for, as a share.
fn log_waits(rank: &OffCpuRank) -> f64 {
    rank.waits
        .iter()
        .filter(|row| {
            row.wait_function.is_some()
                && row
                    .lua_line
                    .as_ref()
                    .is_some_and(|line| line.contains("audit/log.lua"))
        })
        .map(|row| row.waits.share)
        .sum()
}

fn record_log_lab(fixed: bool) -> Option<OffCpuRank> {
    let lab = Lab::start("sync-log", fixed)?;
    let recording = record_for(
        RecordPlan {
            rate_hz: 99,
            ..Plan::off_cpu()
        },
        &lab.ready.pids.workers,
        Duration::from_secs(5),
    )?;
    recording.assert_ledgers_balance();
    let rank = off_cpu_rank(&recording);
    let d = &rank.denominators;
    eprintln!(
        "fixed {fixed}: blocked {:.0} ms in {} waits, idle {:.0} ms, preempted {:.0} ms; {}",
        d.blocked_ns as f64 / 1e6,
        d.blocked_waits,
        d.idle_ns as f64 / 1e6,
        d.preempted_ns as f64 / 1e6,
        recording.profile.ledger
    );
    for row in rank.waits.iter().take(8) {
        eprintln!(
            "    {:.1} % {:?} {:?} {:?} {:?}",
            100.0 * row.waits.share,
            row.wait_function,
            row.native_function,
            row.lua_function,
            row.lua_line
        );
    }
    Some(rank)
}

#[test]
fn the_wait_for_a_synchronous_log_is_most_of_the_blocked_time() {
    let _turn = one_at_a_time();
    let Some(rank) = record_log_lab(false) else {
        return;
    };
    let share = log_waits(&rank);
    eprintln!(
        "waits of the log are {:.1} % of the blocked time",
        100.0 * share
    );
    assert!(share >= 0.5);
}

#[test]
fn with_the_log_buffered_its_wait_is_gone() {
    let _turn = one_at_a_time();
    let Some(rank) = record_log_lab(true) else {
        return;
    };
    let waited: f64 = rank.denominators.blocked_ns as f64 * log_waits(&rank);
    eprintln!(
        "waits of the log are {:.1} ms of 5 s on two workers",
        waited / 1e6
    );
    // Ten of its writes are asked for in 5 s; none of them waits for the disk.
    assert!(waited <= 0.05 * 10e9);
}
