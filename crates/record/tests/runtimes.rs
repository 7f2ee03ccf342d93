//! Programs of other languages are recorded with named stacks that reach their entry.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::program::{Program, programs, scratch};
use support::recording::{Plan, Recording, one_at_a_time, record_to_the_end};
use throughline_profile::{Flags, Sample};

const RATE_HZ: u32 = 499;
const SECONDS: &str = "3";

/// The path of a program, or a word on standard error that it is missing.
fn installed(tool: &'static str) -> Option<&'static str> {
    let found = Command::new(tool)
        .arg(if tool == "go" { "version" } else { "--version" })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(_) => Some(tool),
        Err(error) => {
            eprintln!("SKIPPED: {tool}: {error}");
            None
        }
    }
}

fn source(name: &str) -> PathBuf {
    programs().join("runtimes").join(name)
}

fn build(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Whether the frames, root first, hold functions of these names in this order, whatever lies between.
fn calls(recording: &Recording, sample: &Sample, chain: &[&str]) -> bool {
    let mut frames = recording.frames(sample).into_iter().rev();
    chain
        .iter()
        .all(|part| frames.any(|frame| recording.name(frame).contains(part)))
}

/// What is imperfect about a recording, in %.
struct Quality {
    incomplete: f64,
    guessed: f64,
    nameless_frames: f64,
}

fn quality(recording: &Recording) -> Quality {
    recording.assert_ledgers_balance();
    let samples = recording.on_cpu().count();
    assert!(
        samples > 200,
        "only {samples} samples: {}",
        recording.profile.ledger
    );
    let share = |count: usize, of: usize| 100.0 * count as f64 / of.max(1) as f64;
    let frames: Vec<_> = recording
        .on_cpu()
        .flat_map(|sample| recording.frames(sample))
        .collect();
    let nameless = frames
        .iter()
        .filter(|frame| frame.name_reason.is_some())
        .count();
    let guessed = recording
        .on_cpu()
        .filter(|sample| sample.flags.contains(Flags::GUESSED_FRAME))
        .count();
    let quality = Quality {
        incomplete: share(recording.incomplete(), samples),
        guessed: share(guessed, samples),
        nameless_frames: share(nameless, frames.len()),
    };
    eprintln!(
        "{samples} samples: {:.2} % incomplete, {:.2} % with a guessed frame, {:.2} % of the frames without a name",
        quality.incomplete, quality.guessed, quality.nameless_frames
    );
    quality
}

/// Fails unless so many percent of the samples hold the chain.
fn assert_chain(recording: &Recording, chain: &[&str], at_least: f64) {
    let samples = recording.on_cpu().count();
    let with = recording
        .on_cpu()
        .filter(|sample| calls(recording, sample, chain))
        .count();
    let share = 100.0 * with as f64 / samples as f64;
    eprintln!("{share:.2} % of {samples} samples hold {chain:?}");
    if share < at_least {
        recording.print_stacks();
    }
    assert!(share >= at_least, "{share:.2} % hold {chain:?}");
}

#[test]
fn node_is_recorded_with_the_names_of_its_functions() {
    let Some(node) = installed("node") else {
        return;
    };
    let _turn = one_at_a_time();
    let script = source("spin.js");
    // Without the second option all interpreted functions share one name, that of the interpreter; inlined functions have no frame
    // of their own.
    let arguments = [
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        "--no-turbo-inlining",
        text(&script),
        SECONDS,
    ];
    let mut program = Program::start(node, &arguments);
    program.expect_line("ready");
    let map = PathBuf::from(format!("/tmp/perf-{}.map", program.pid()));
    let recording = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program);
    // Nobody else removes what Node leaves behind.
    let _ = fs::remove_file(map);
    let Some(recording) = recording else { return };
    let found = quality(&recording);
    assert_chain(
        &recording,
        &["node::Start", "entryWork", "middleWork", "leafWork"],
        90.0,
    );
    assert!(found.incomplete <= 1.0);
}

fn go_program(go: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    build(
        Command::new(go)
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env("GO111MODULE", "off")
            .env("GOCACHE", scratch().join("go-cache"))
            .args(["build", "-o", text(&program)])
            .args(flags)
            .arg(source("spin.go")),
    );
    program
}

/// The work runs on the main goroutine: from its entry, `runtime.goexit`, every call is there, that of the leaf function's caller too,
/// which frame pointers do not show.
fn go_is_recorded_from_goroutine_to_leaf(name: &str, flags: &[&str]) {
    let Some(go) = installed("go") else { return };
    let _turn = one_at_a_time();
    let mut program = Program::start(go_program(go, name, flags), &["spin", SECONDS]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let found = quality(&recording);
    let chain = [
        "runtime.goexit",
        "runtime.main",
        "main.main",
        "main.spin",
        "main.work",
        "main.leaf",
    ];
    assert_chain(&recording, &chain, 97.0);
    assert!(found.incomplete <= 1.0 && found.guessed == 0.0);
    assert!(found.nameless_frames <= 0.5);
}

#[test]
fn go_is_recorded_from_the_goroutines_entry_to_the_leaf() {
    go_is_recorded_from_goroutine_to_leaf("spin-go", &[]);
}

#[test]
fn stripped_go_is_recorded_from_the_goroutines_entry_to_the_leaf() {
    go_is_recorded_from_goroutine_to_leaf("spin-go-stripped", &["-ldflags", "-s -w"]);
}

/// The Go runtime does part of its work on a stack of the thread, and the goroutine's stack lies elsewhere: such a sample says that
/// it was cut. Nothing else may be missing.
#[test]
fn a_go_service_is_cut_only_where_the_runtime_changed_stacks() {
    let Some(go) = installed("go") else { return };
    let _turn = one_at_a_time();
    let mut program = Program::start(go_program(go, "serve-go", &[]), &["serve", SECONDS]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    quality(&recording);
    let samples = recording.on_cpu().count() as f64;
    let cut: Vec<&Sample> = recording
        .on_cpu()
        .filter(|sample| {
            sample.flags.contains(Flags::STACK_TRUNCATED)
                || sample.flags.contains(Flags::NATIVE_UNWIND_INCOMPLETE)
        })
        .collect();
    let unexplained: Vec<String> = cut
        .iter()
        .filter(|sample| {
            let frames = recording.frames(sample);
            let root = frames.last().map_or("", |frame| recording.name(frame));
            let switches = [
                "runtime.systemstack",
                "runtime.morestack",
                "runtime.asmcgocall",
                "runtime.nanotime",
                "runtime.sigreturn",
                "runtime.sigtramp",
                "runtime.cgoSigtramp",
                "time.now",
            ];
            !switches.iter().any(|switch| root.starts_with(switch))
        })
        .map(|sample| recording.text(sample))
        .collect();
    eprintln!(
        "{} of {samples} cut, {} not at a change of stacks",
        cut.len(),
        unexplained.len()
    );
    for stack in unexplained.iter().take(10) {
        eprintln!("{stack}");
    }
    assert!(unexplained.len() as f64 <= samples * 0.01);
    let handled = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["main.handle"]))
        .count();
    let entered = recording
        .on_cpu()
        .filter(|sample| {
            calls(
                &recording,
                sample,
                &["runtime.goexit", "main.serve", "main.handle"],
            )
        })
        .count();
    assert!(
        entered as f64 >= 0.99 * handled as f64,
        "{entered} of {handled}"
    );
    assert!(handled as f64 > 0.3 * samples, "{handled} of {samples}");
}

#[test]
fn rust_is_recorded_with_demangled_names_up_to_main() {
    let Some(rustc) = installed("rustc") else {
        return;
    };
    let _turn = one_at_a_time();
    let program = scratch().join("spin-rust");
    // What a release build is by default.
    build(
        Command::new(rustc)
            .args([
                "--edition=2021",
                "-Copt-level=3",
                "-Cdebuginfo=0",
                "-o",
                text(&program),
            ])
            .arg(source("spin.rs")),
    );
    let mut program = Program::start(program, &[SECONDS]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let found = quality(&recording);
    assert!(found.incomplete <= 1.0 && found.guessed == 0.0);
    let samples = recording.on_cpu().count();
    let main: Vec<&Sample> = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["spin::main"]))
        .collect();
    assert!(main.len() > samples / 5);
    let recursion = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["Square<T> as spin::Shape>::area"]))
        .filter(|sample| {
            let frames = recording.frames(sample);
            frames
                .iter()
                .filter(|frame| recording.name(frame) == "spin::descend")
                .count()
                == 31
        })
        .count();
    let all = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["spin::Shape>::area"]))
        .count();
    eprintln!("{recursion} of {all} samples in the leaf have all 31 levels of the recursion");
    assert!(all > samples / 5 && recursion as f64 >= 0.99 * all as f64);
    let counted = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["start_thread", "spin::count_words"]))
        .count();
    let words = recording
        .on_cpu()
        .filter(|sample| calls(&recording, sample, &["spin::count_words"]))
        .count();
    assert!(
        words > samples / 5 && counted == words,
        "{counted} of {words} reach the thread's entry"
    );
}

#[test]
fn cpp_is_recorded_with_whole_demangled_names_up_to_main() {
    let Some(cpp) = installed("c++") else { return };
    let _turn = one_at_a_time();
    let program = scratch().join("spin-cpp");
    build(
        Command::new(cpp)
            .args(["-O2", "-g0", "-std=c++17", "-o", text(&program)])
            .arg(source("spin.cpp")),
    );
    let mut program = Program::start(program, &[SECONDS]);
    program.expect_line("ready");
    let Some(recording) = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program) else {
        return;
    };
    let found = quality(&recording);
    assert!(found.incomplete <= 1.0 && found.guessed == 0.0);
    assert_chain(&recording, &["_start", "main"], 99.0);
    let holds = |name: &str| {
        recording
            .on_cpu()
            .filter(|sample| calls(&recording, sample, &["main", name]))
            .count()
    };
    assert!(holds("geometry::Square<unsigned int>::area(unsigned long) const") > 20);
    assert!(holds("sort_pairs(std::map<int, std::vector<int, std::allocator<int> >") > 20);
}

#[test]
fn java_is_recorded_with_the_names_of_its_methods() {
    let (Some(java), Some(javac), Some(jcmd)) = (installed("java"), installed("javac"), jcmd())
    else {
        return;
    };
    let _turn = one_at_a_time();
    build(
        Command::new(javac)
            .args(["-d", text(&scratch())])
            .arg(source("Spin.java")),
    );
    // The warm-up compiles every method before it goes on (-Xbatch), so that the names asked for below are the last.
    let options = [
        "-Xbatch",
        "-XX:-TieredCompilation",
        "-XX:+PreserveFramePointer",
        "-XX:-Inline",
        "-Xmx256m",
        "-XX:+UseSerialGC",
    ];
    let classes = scratch();
    let arguments: Vec<&str> = options
        .into_iter()
        .chain(["-cp", text(&classes), "Spin", SECONDS])
        .collect();
    let mut program = Program::start(java, &arguments);
    program.expect_line("ready");
    // JVMs since 17 write the names of their compiled code when they are asked to.
    build(Command::new(jcmd).args([&program.pid().to_string(), "Compiler.perfmap"]));
    let map = PathBuf::from(format!("/tmp/perf-{}.map", program.pid()));
    let recording = record_to_the_end(Plan::on_cpu(RATE_HZ), &mut program);
    let _ = fs::remove_file(map);
    let Some(recording) = recording else { return };
    let found = quality(&recording);
    assert_chain(
        &recording,
        &[
            "JavaMain",
            "Spin.entryWork",
            "Spin.middleWork",
            "Spin.leafWork",
        ],
        85.0,
    );
    assert!(found.incomplete <= 3.0);
}

fn jcmd() -> Option<&'static str> {
    let found = Command::new("jcmd")
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        eprintln!("SKIPPED: jcmd: not installed");
    }
    found.ok().map(|_| "jcmd")
}
