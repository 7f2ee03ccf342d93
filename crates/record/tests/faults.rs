//! What goes wrong around a recording: targets that end, too many threads, full buffers, memory that changes, files that lie,
//! company, and sudden death. Nothing that was kept is lost, nothing is left behind, the target does not notice, and the
//! recorder stays small.

mod recorder;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use recorder::{Order, Recorder};
use support::program::{Program, compile, programs, scratch};
use support::recording::{Plan, one_at_a_time, record, record_for};
use throughline_profile::{Capture, FrameKind, Profile, escape};
use throughline_record::{Keeper, Progress, RecordError, RecordPlan};

/// What a recorder in a process of its own runs.
#[test]
#[ignore = "started by the other tests"]
fn recorder_process() {
    recorder::serve();
}

fn target(arguments: &[&str]) -> Program {
    let mut program = Program::start(compile("targets.c", "targets", &[]), arguments);
    program.expect_line("ready");
    program
}

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

/// A keeper for recordings that cannot begin.
struct Nothing;

impl Keeper for Nothing {
    fn flush(&mut self, _: &mut Profile) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    fn go_on(&mut self, _: Progress) -> bool {
        true
    }
}

#[test]
fn a_process_that_is_gone_is_named_in_the_error() {
    let mut child = Command::new("true").spawn().expect("true runs");
    let pid = child.id();
    child.wait().expect("it ends");
    let plan = RecordPlan {
        pids: vec![pid],
        ..Plan::both(99)
    };
    match throughline_record::record(&plan, Capture::default(), &mut Nothing) {
        Err(RecordError::Programs(error)) => eprintln!("SKIPPED: ebpf: {error}"),
        Err(error @ RecordError::Target { .. }) => {
            let message = error.to_string();
            assert!(message.contains(&pid.to_string()), "{message}");
            assert!(
                message.contains("ended")
                    || message.contains("gone")
                    || message.contains("no such"),
                "{message}"
            );
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("process {pid} was recorded though it had ended"),
    }
}

#[test]
fn a_target_that_dies_ends_the_recording_and_leaves_its_samples() {
    let _turn = one_at_a_time();
    let mut program = target(&["storm", "2", "60"]);
    let pid = program.pid();
    let plan = RecordPlan {
        pids: vec![pid],
        ..Plan::both(499)
    };
    let mut killed = None;
    let recording = record(
        &plan,
        || program.go(),
        |progress| {
            if progress.elapsed.0 > 1_000_000_000 && killed.is_none() {
                killed = Some(Instant::now());
                signal(pid, "KILL");
            }
            false
        },
    );
    let Some(recording) = recording else { return };
    assert!(killed.expect("it ran for a second").elapsed() < Duration::from_secs(3));
    recording.assert_ledgers_balance();
    assert!(recording.on_cpu().count() > 100);
    assert!(recording.target().ended.is_some());
    let lost = recording.profile.ledger.lost_total().0;
    assert!(
        lost * 50 <= recording.profile.ledger.taken,
        "{}",
        recording.profile.ledger
    );
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
}

#[test]
fn five_thousand_threads_are_recorded_within_seconds() {
    let _turn = one_at_a_time();
    let mut program = target(&["threads", "5000"]);
    let Some(recorder) = Recorder::start(&Order {
        pids: &[program.pid()],
        seconds: 4.0,
        rate_hz: 199,
        ..Order::default()
    }) else {
        return;
    };
    let start = recorder.until_recording;
    program.go();
    let outcome = recorder.finish();
    eprintln!("attached after {start:?}; {:?}", outcome.numbers);
    outcome.assert_sound();
    assert!(start < Duration::from_secs(10), "{start:?}");
    assert!(outcome.number("samples") > 1000);
    // Every thread got its own clock: no core was sampled instead.
    assert_eq!(outcome.warnings, [""; 0]);
    assert!(outcome.number("on_cpu") > 100);
    assert!(outcome.holding("outer_work") > 50);
}

#[test]
fn when_descriptors_are_few_the_cores_are_sampled_and_the_user_is_told() {
    let _turn = one_at_a_time();
    let mut program = target(&["threads", "1000"]);
    let order = Order {
        pids: &[program.pid()],
        seconds: 3.0,
        wrapper: &["prlimit", "--nofile=600:600"],
        ..Order::default()
    };
    let Some(recorder) = Recorder::start(&order) else {
        return;
    };
    program.go();
    let outcome = recorder.finish();
    eprintln!("{:?}", outcome.numbers);
    outcome.assert_sound();
    assert!(
        outcome
            .warnings
            .iter()
            .any(|warning| warning.contains("file descriptors")),
        "{:?}",
        outcome.warnings
    );
    assert!(outcome.number("on_cpu") > 300);
    assert!(outcome.holding("outer_work") > 200);
}

#[test]
fn what_does_not_fit_into_the_ring_is_counted() {
    let _turn = one_at_a_time();
    let mut program = target(&["storm", "8", "60"]);
    let order = Order {
        pids: &[program.pid()],
        seconds: 8.0,
        rate_hz: 4999,
        min_block_us: 50,
        ..Order::default()
    };
    let Some(recorder) = Recorder::start(&order) else {
        return;
    };
    program.go();
    thread::sleep(Duration::from_millis(500));
    recorder.signal("STOP");
    thread::sleep(Duration::from_secs(4));
    recorder.signal("CONT");
    let outcome = recorder.finish();
    eprintln!("{:?}", outcome.numbers);
    outcome.assert_sound();
    assert!(outcome.number("lost.ring_full") > 100);
    assert!(outcome.number("kept") > 500);
}

#[test]
fn a_vm_whose_memory_changes_while_it_is_read_costs_samples_and_nothing_else() {
    let _turn = one_at_a_time();
    let Some(mut program) = luajit("churn.lua", &[]) else {
        return;
    };
    program.go();
    let Some(recorder) = Recorder::start(&Order {
        pids: &[program.pid()],
        seconds: 5.0,
        rate_hz: 1999,
        ..Order::default()
    }) else {
        return;
    };
    let outcome = recorder.finish();
    eprintln!("{:?}", outcome.numbers);
    outcome.assert_sound();
    let all = outcome.number("on_cpu");
    assert!(all > 500);
    assert!(
        outcome.number("complete") * 100 >= all * 98,
        "{} of {all}",
        outcome.number("complete")
    );
    signal(program.pid(), "0");
}

/// The chunk names are those of `hostile_names.lua`.
#[test]
fn hostile_chunk_names_are_kept_and_shown_harmlessly() {
    let _turn = one_at_a_time();
    let fifo = scratch().join("source.lua");
    let _ = fs::remove_file(&fifo);
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("mkfifo runs")
            .success()
    );
    let Some(mut program) = luajit(
        "hostile_names.lua",
        &[fifo.to_str().expect("a path of this test")],
    ) else {
        return;
    };
    program.go();
    let begun = Instant::now();
    let recording = record_for(Plan::on_cpu(997), &[program.pid()], Duration::from_secs(4));
    let Some(recording) = recording else { return };
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "a name made the recorder wait"
    );
    recording.assert_ledgers_balance();
    let profile = &recording.profile;
    let sources: BTreeSet<&str> = recording
        .on_cpu()
        .flat_map(|sample| recording.frames(sample))
        .filter(|frame| frame.kind == FrameKind::Lua)
        .filter_map(|frame| frame.source.map(|source| profile.strings.get(source)))
        .collect();
    for expected in [
        "=\x1b[31mred\x1b[0m\x1b]0;title\x07",
        "=<script>alert(1)</script>",
        "=two\nlines\rand;semicolons",
        "@/dev/zero",
        "@/dev/watchdog",
        "@/proc/kmsg",
        "@../../../../../etc/shadow",
    ] {
        assert!(
            sources.contains(expected),
            "{expected:?} of {:?}",
            sources.iter().map(|s| escape(s)).collect::<Vec<_>>()
        );
    }
    assert!(sources.contains(format!("@{}", fifo.display()).as_str()));
    // A megabyte of name is cut, and its beginning kept.
    let long = sources
        .iter()
        .find(|source| source.starts_with("=long "))
        .expect("it is recorded");
    assert!((1000..=8192).contains(&long.len()), "{} bytes", long.len());
    // Bytes that are no UTF-8 are replaced.
    assert!(
        sources
            .iter()
            .any(|source| source.starts_with("=bytes \u{fffd}"))
    );
    for (_, frame) in profile.frames.iter() {
        let shown = escape(profile.strings.get(frame.name));
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.len() < 10_000);
    }
}

#[test]
fn two_recorders_of_one_target_both_see_all_of_it() {
    let _turn = one_at_a_time();
    let mut program = target(&["checksum", "100000"]);
    program.go();
    let order = Order {
        pids: &[program.pid()],
        seconds: 3.0,
        ..Order::default()
    };
    let (Some(first), Some(second)) = (Recorder::start(&order), Recorder::start(&order)) else {
        return;
    };
    for outcome in [first.finish(), second.finish()] {
        outcome.assert_sound();
        let due = outcome.number("cpu_ns") as f64 / 1e9 * 499.0;
        let taken = outcome.number("taken_on_cpu") as f64;
        eprintln!(
            "{taken} samples, {due:.0} were due; {} of {} complete",
            outcome.number("complete"),
            outcome.number("on_cpu")
        );
        assert!((taken / due - 1.0).abs() < 0.05);
        assert!(outcome.holding("outer_work") > 100);
    }
}

/// What a process holds of BPF, by the kernel's ids.
#[derive(Debug, Default)]
struct Held {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

fn held_by(pid: u32) -> Held {
    let mut held = Held::default();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .expect("it lives")
        .flatten()
    {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let id = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok())
        };
        held.links.extend(id("link_id:"));
        held.maps.extend(id("map_id:"));
        // A link names its program too.
        held.programs.extend(id("prog_id:"));
    }
    held
}

fn exists(kind: &str, id: u32) -> bool {
    let shown = Command::new("bpftool")
        .args([kind, "show", "id", &id.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    shown.is_ok_and(|status| status.success())
}

/// The result of `checksum ROUNDS` without a recorder.
fn undisturbed_checksum(rounds: &str) -> String {
    let mut program = target(&["checksum", rounds]);
    program.go();
    program.line()
}

#[test]
fn a_killed_recorder_leaves_nothing_in_the_kernel_and_no_trace_in_the_target() {
    if Command::new("bpftool").arg("version").output().is_err() {
        eprintln!("SKIPPED: bpftool: not installed");
        return;
    }
    let _turn = one_at_a_time();
    let expected = undisturbed_checksum("3000");
    let mut program = target(&["checksum", "3000"]);
    let Some(recorder) = Recorder::start(&Order {
        pids: &[program.pid()],
        seconds: 30.0,
        ..Order::default()
    }) else {
        return;
    };
    program.go();
    thread::sleep(Duration::from_millis(700));
    let held = held_by(recorder.pid);
    eprintln!("{held:?}");
    assert!(held.programs.len() >= 5 && held.maps.len() >= 5 && held.links.len() >= 4);
    assert!(held.programs.iter().all(|&id| exists("prog", id)));
    let status =
        fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("the target lives");
    assert!(
        status.contains("TracerPid:\t0"),
        "nothing traces the target"
    );
    recorder.kill();

    // The kernel frees programs and maps after a grace period.
    let until = Instant::now() + Duration::from_secs(10);
    let left = || {
        let of = |kind: &'static str, ids: &BTreeSet<u32>| {
            ids.iter()
                .filter(|&&id| exists(kind, id))
                .map(|id| format!("{kind} {id}"))
                .collect::<Vec<_>>()
        };
        [
            of("prog", &held.programs),
            of("map", &held.maps),
            of("link", &held.links),
        ]
        .concat()
    };
    while !left().is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(left(), [""; 0]);

    let status =
        fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("the target lives");
    let state = status
        .lines()
        .find(|line| line.starts_with("State:"))
        .expect("it has a state");
    assert!(state.contains('R') || state.contains('S'), "{state}");
    assert_eq!(program.line(), expected, "the target's own result");
}

/// Removed when the value is dropped.
struct PerfMap(PathBuf);

impl PerfMap {
    fn of(pid: u32) -> Self {
        Self(PathBuf::from(format!("/tmp/perf-{pid}.map")))
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Records a program that runs machine code without a file, whose perf map `lie` writes; answers with the samples, those that hold
/// the code's honest name, and how long it took.
fn recorded_with_map(honest: bool, lie: impl FnOnce(&Path)) -> Option<(u64, u64, Duration)> {
    let mut program = Program::start(compile("targets.c", "targets", &[]), &["code", "60"]);
    let code = program.line();
    program.expect_line("ready");
    let map = PerfMap::of(program.pid());
    lie(&map.0);
    if honest {
        let (start, size) = code
            .strip_prefix("code ")
            .and_then(|code| code.split_once(' '))
            .expect("where its code is");
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&map.0)
            .expect("/tmp can be written");
        file.seek(SeekFrom::End(0)).expect("it is a file");
        writeln!(file, "\n{start} {size} honest name").expect("/tmp can be written");
    }
    program.go();
    let recorder = Recorder::start(&Order {
        pids: &[program.pid()],
        seconds: 2.0,
        ..Order::default()
    })?;
    let outcome = recorder.finish();
    outcome.assert_sound();
    eprintln!("{:?} in {:?}", outcome.numbers, outcome.took);
    assert!(outcome.number("on_cpu") > 200);
    // The caller has a file and with it a name, whatever the map says.
    assert!(outcome.holding("machine_code") * 10 >= outcome.number("on_cpu") * 9);
    Some((
        outcome.number("on_cpu"),
        outcome.holding("honest name"),
        outcome.took,
    ))
}

#[test]
fn an_honest_line_in_a_perf_map_of_junk_still_names_its_code() {
    let _turn = one_at_a_time();
    let junk = |map: &Path| {
        let mut state = 1_u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(3 << 20)
        .collect();
        fs::write(map, bytes).expect("/tmp can be written");
    };
    let Some((samples, named, _)) = recorded_with_map(true, junk) else {
        return;
    };
    assert!(named * 10 >= samples * 9, "{named} of {samples}");
}

#[test]
fn a_perf_map_that_is_a_fifo_does_not_block_the_recorder() {
    let _turn = one_at_a_time();
    let fifo = |map: &Path| {
        assert!(
            Command::new("mkfifo")
                .arg(map)
                .status()
                .expect("mkfifo runs")
                .success()
        );
    };
    let Some((_, named, took)) = recorded_with_map(false, fifo) else {
        return;
    };
    assert_eq!(named, 0);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_perf_map_without_end_does_not_fill_the_recorders_memory() {
    let _turn = one_at_a_time();
    let huge = |map: &Path| {
        // Entries as small as they come, far from the real code: 300 MB, most of them a hole in the file.
        let mut file = fs::File::create(map).expect("/tmp can be written");
        let mut lines = String::new();
        for i in 0..3_000_000_u64 {
            lines.push_str(&format!("{:x} 8 f{i:x}\n", 0x1000_0000 + i * 16));
        }
        file.write_all(lines.as_bytes())
            .expect("/tmp can be written");
        file.set_len(300 << 20).expect("/tmp can be written");
    };
    let Some((_, _, took)) = recorded_with_map(false, huge) else {
        return;
    };
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_program_file_that_was_replaced_while_it_runs_is_read_as_it_was() {
    let _turn = one_at_a_time();
    let original = compile("targets.c", "targets", &[]);
    let path = scratch().join("replaced");
    fs::copy(&original, &path).expect("it can be copied");
    let mut program = Program::start(&path, &["storm", "1", "60"]);
    program.expect_line("ready");
    // As a package manager does: a new file takes the name.
    fs::write(scratch().join("replacement"), vec![0x7f; 100_000]).expect("it can be written");
    fs::rename(scratch().join("replacement"), &path).expect("it can be renamed");
    program.go();
    let Some(recorder) = Recorder::start(&Order {
        pids: &[program.pid()],
        ..Order::default()
    }) else {
        return;
    };
    let outcome = recorder.finish();
    outcome.assert_sound();
    let (named, all) = (outcome.holding("deep_work"), outcome.number("on_cpu"));
    assert!(
        all > 200 && named * 10 >= all * 8,
        "{named} of {all}: {:?}",
        outcome.frames
    );
}

/// The new program may get the file number of the deleted one, and does on ext4.
#[test]
fn a_program_that_takes_the_place_of_a_deleted_one_is_not_mistaken_for_it() {
    let _turn = one_at_a_time();
    let path = scratch().join("rebuilt");
    let build = |flags: &[&str]| {
        let _ = fs::remove_file(&path);
        let built = compile("targets.c", "other", flags);
        let bytes = fs::read(built).expect("it was built");
        let mut file = fs::File::create(&path).expect("it can be written");
        file.write_all(&bytes).expect("it can be written");
        drop(file);
        assert!(
            Command::new("chmod")
                .args(["+x"])
                .arg(&path)
                .status()
                .expect("chmod runs")
                .success()
        );
    };
    build(&["-O1", "-Dleaf_work=first_leaf", "-Douter_work=first_outer"]);
    let mut parent = Program::start(
        "sh",
        &[
            "-c",
            "echo ready; read line; \"$0\" executed; \"$0\" executed; true",
            path.to_str().expect("a path of this test"),
        ],
    );
    parent.expect_line("ready");
    let pid = parent.pid();
    let plan = RecordPlan {
        pids: vec![pid],
        ..Plan::on_cpu(499)
    };
    let mut rebuilt = false;
    let recording = record(
        &plan,
        || parent.go(),
        |progress| {
            // Both programs run 0.7 s of CPU time.
            if progress.kept > 150 && !rebuilt {
                rebuilt = true;
                build(&[
                    "-O1",
                    "-Dleaf_work=second_leaf",
                    "-Douter_work=second_outer",
                    "-DPADDING",
                ]);
            }
            false
        },
    );
    let Some(recording) = recording else { return };
    recording.assert_ledgers_balance();
    let holding = |name: &str| {
        recording
            .on_cpu()
            .filter(|sample| recording.holds(sample, name))
            .count()
    };
    let (first, second) = (holding("first_leaf"), holding("second_leaf"));
    eprintln!("{first} samples in the first program, {second} in the second");
    assert!(first > 250 && second > 250);
}
