//! The check against programs whose answer is known.
//!
//! Each program is this test binary, run again as [`helper`] with a part to play, so the tests need no other program.
//! What is expected comes from the program's own clocks (`CLOCK_PROCESS_CPUTIME_ID` against `CLOCK_MONOTONIC`, the
//! equals of getrusage and a stopwatch), which it prints when told to stop. The machine may be busy with other
//! work, so programs that need a core ask for it by nice -20 and the tests compare with what they got.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only the library is pure"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    ops::ControlFlow,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    thread::CpuSet,
    time::{ClockId, clock_gettime},
};
use throughline_analyses::check::{CheckReport, OFF_CPU_AT_MOST, ON_CPU_AT_LEAST, check};
use throughline_evidence::{Condition, Holds, Verdict};
use throughline_host::{PeerChoice, Plan, Process, Selector, find_processes, sample};

const PART: &str = "THROUGHLINE_CHECK_TEST_PART";
const WINDOW: Duration = Duration::from_millis(2500);
/// Between the program's clocks and the scheduler's counters lie the scheduler's tick (4 ms at 250 Hz) at both
/// ends, and the helper's work before and after the window.
const TOLERANCE: f64 = 0.05;

/// The programs have a core each only while one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running helper; dropped, it is killed and waited for.
struct Program {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Program {
    /// Starts this binary as a helper and waits until it plays its part.
    fn start(part: &str, core: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["helper", "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, format!("{core} {part}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, out };
        program.line_with("ready");
        program
    }

    fn line_with(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            if let Some(at) = line.find(word) {
                return line[at + word.len()..].trim().to_owned();
            }
            line.clear();
        }
        panic!("the helper ended without {word:?}");
    }

    fn say(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    /// Its own CPU and wall clock now, in seconds.
    fn clocks(&mut self) -> (f64, f64) {
        self.say("clocks");
        let line = self.line_with("clocks");
        let (cpu, wall) = line.split_once(' ').unwrap();
        (cpu.parse().unwrap(), wall.parse().unwrap())
    }

    fn process(&self) -> Process {
        find(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(pid: u32) -> Process {
    let selector = Selector {
        pids: vec![pid],
        ..Selector::default()
    };
    find_processes(&selector).unwrap().remove(0)
}

fn run_check(targets: Vec<Process>) -> CheckReport {
    let plan = Plan {
        targets,
        upstream: PeerChoice::FindOnConnections,
        load: PeerChoice::FindOnConnections,
        duration: WINDOW,
        interval: Duration::from_millis(250),
    };
    check(&sample(&plan, &mut |_| ControlFlow::Continue(())).unwrap())
}

/// Checks a program, and what share of a core its own clocks say that it used meanwhile.
fn check_with_truth(program: &mut Program) -> (CheckReport, f64) {
    let target = program.process();
    let (cpu_before, wall_before) = program.clocks();
    let report = run_check(vec![target]);
    let (cpu_after, wall_after) = program.clocks();
    (
        report,
        (cpu_after - cpu_before) / (wall_after - wall_before),
    )
}

fn condition<'a>(report: &'a CheckReport, name: &str) -> &'a Condition {
    report
        .conditions
        .iter()
        .find(|condition| condition.name == name)
        .unwrap()
}

fn assert_close(reading: f64, truth: f64) {
    assert!(
        (reading - truth).abs() < TOLERANCE,
        "read {reading}, the program's own clocks say {truth}"
    );
}

/// The rule, applied to the program's own share: `None` when it is too near to a border to say.
fn expected(truth: f64) -> Option<Verdict> {
    let near = |border: f64| (truth - border).abs() < TOLERANCE;
    match truth {
        _ if near(ON_CPU_AT_LEAST) || near(OFF_CPU_AT_MOST) => None,
        share if share > ON_CPU_AT_LEAST => Some(Verdict::OnCpu),
        share if share < OFF_CPU_AT_MOST => Some(Verdict::OffCpu),
        _ => Some(Verdict::Both),
    }
}

/// The wait for a core may rightly fail on a machine that is busy with something else; then the verdict follows it.
fn assert_verdict(report: &CheckReport, truth: f64, meant: Verdict) {
    let contended =
        condition(report, "run_queue_wait").forbids() || condition(report, "steal").forbids();
    if contended {
        assert_eq!(report.verdict, Verdict::NotExplainable);
        eprintln!(
            "SKIPPED: a core of its own: the machine was busy, {:?}",
            condition(report, "run_queue_wait").detail
        );
    } else if expected(truth) == Some(meant) {
        assert_eq!(report.verdict, meant, "{:#?}", report.text_lines());
        assert_eq!(report.exit_code(), 0);
    } else {
        eprintln!(
            "SKIPPED: a core of its own: the program got {truth:.3} of one, which is not {meant:?}"
        );
    }
}

#[test]
fn a_busy_loop_on_its_core_is_bound_by_it() {
    let _alone = alone();
    let mut program = Program::start("duty 100", 0);
    let (report, truth) = check_with_truth(&mut program);
    let worker = report.worker.clone().unwrap();
    assert_close(worker.cpu_share, truth);
    assert_eq!(worker.allowed.unwrap().to_string(), "0");
    assert_eq!(worker.cores.keys().copied().collect::<Vec<_>>(), [0]);
    assert_verdict(&report, truth, Verdict::OnCpu);
}

#[test]
fn a_sleeper_with_short_work_is_off_its_core() {
    let _alone = alone();
    let mut program = Program::start("duty 10", 0);
    let (report, truth) = check_with_truth(&mut program);
    assert_close(report.worker.as_ref().unwrap().cpu_share, truth);
    assert_verdict(&report, truth, Verdict::OffCpu);
    let thread = &report.observation.targets[0].threads[0];
    // It sleeps every 10 ms: 250 times in the window on a quiet machine.
    assert!(*thread.voluntary_switches.as_ref().unwrap() > 50);
}

#[test]
fn between_the_thresholds_it_takes_both_graphs() {
    let _alone = alone();
    let mut program = Program::start("duty 60", 0);
    let (report, truth) = check_with_truth(&mut program);
    assert_close(report.worker.as_ref().unwrap().cpu_share, truth);
    assert_verdict(&report, truth, Verdict::Both);
}

#[test]
fn two_busy_loops_on_one_core_starve_each_other_and_the_neighbour_is_named() {
    let _alone = alone();
    let mut program = Program::start("duty 100", 1);
    let neighbour = Program::start("duty 100", 1);
    let (report, truth) = check_with_truth(&mut program);
    assert_close(report.worker.as_ref().unwrap().cpu_share, truth);
    // Runnable for the whole window, so what it did not get it waited for.
    let wait = condition(&report, "run_queue_wait");
    assert!(
        (wait.reading.unwrap() - (1.0 - truth)).abs() < 2.0 * TOLERANCE,
        "{wait:?}, truth {truth}"
    );
    assert_eq!(wait.holds, Holds::No);
    assert_eq!(report.verdict, Verdict::NotExplainable);
    assert_eq!(report.exit_code(), 1);
    let named = format!("(pid {})", neighbour.child.id());
    assert!(wait.detail.contains(&named), "{}", wait.detail);
    assert!(
        report.check_first.iter().any(|line| line.contains(&named)),
        "{:?}",
        report.check_first
    );
}

#[test]
fn a_saturated_load_generator_is_found_on_the_connection_and_named_first() {
    let _alone = alone();
    let mut server = Program::start("serve", 0);
    let port = server.line_with("port");
    let mut load = Program::start(&format!("load {port}"), 1);
    let target = server.process();
    let (cpu_before, wall_before) = load.clocks();
    let report = run_check(vec![target]);
    let (cpu_after, wall_after) = load.clocks();
    let truth = (cpu_after - cpu_before) / (wall_after - wall_before);

    let found: Vec<u32> = report
        .observation
        .load_generators
        .processes
        .iter()
        .map(|peer| peer.process.pid)
        .collect();
    assert_eq!(found, [load.child.id()]);
    assert!(report.observation.upstreams.processes.is_empty());
    let headroom = condition(&report, "load_generator_headroom");
    // It never sleeps: what it did not get of its core it waited for.
    assert!(
        headroom.reading.unwrap() > truth - TOLERANCE,
        "{headroom:?}, truth {truth}"
    );
    assert_eq!(headroom.holds, Holds::No);
    assert_eq!(report.verdict, Verdict::NotExplainable);
    assert!(
        report.check_first[0].contains("load generator has no headroom"),
        "{:?}",
        report.check_first
    );
}

#[test]
fn an_idle_server_without_load_is_not_explainable() {
    let _alone = alone();
    let server = Program::start("serve", 0);
    let report = run_check(vec![server.process()]);
    assert_eq!(condition(&report, "work_arrives").holds, Holds::No);
    assert_eq!(
        (report.verdict, report.exit_code()),
        (Verdict::NotExplainable, 1)
    );
}

#[test]
fn a_target_that_ends_within_the_window_leaves_no_data() {
    let _alone = alone();
    let mut program = Program::start("duty 10", 0);
    let target = program.process();
    let pid = target.pid;
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        program.child.kill().unwrap();
        // Not waited for yet: a zombie has ended too.
        std::thread::sleep(WINDOW);
        drop(program);
    });
    let report = run_check(vec![target]);
    killer.join().unwrap();
    assert_eq!(report.exit_code(), 3);
    assert!(report.observation.targets[0].ended);
    assert!(report.text_lines()[0].contains("no data"));
    let selector = Selector {
        pids: vec![pid],
        ..Selector::default()
    };
    assert!(find_processes(&selector).is_err());
}

#[test]
fn a_pid_that_is_gone_before_the_window_leaves_no_data() {
    let _alone = alone();
    let program = Program::start("duty 10", 0);
    let target = program.process();
    drop(program);
    let report = run_check(vec![target]);
    assert_eq!(report.exit_code(), 3);
}

#[test]
fn a_window_too_short_to_say_is_no_data() {
    let _alone = alone();
    let program = Program::start("duty 10", 0);
    let plan = Plan {
        targets: vec![program.process()],
        upstream: PeerChoice::Given(Vec::new()),
        load: PeerChoice::Given(Vec::new()),
        duration: Duration::from_millis(200),
        interval: Duration::from_millis(50),
    };
    let report = check(&sample(&plan, &mut |_| ControlFlow::Continue(())).unwrap());
    assert_eq!(report.exit_code(), 3);
    assert!(report.no_data.unwrap().contains("are needed"));
}

#[test]
fn a_worker_started_by_the_target_in_the_window_is_followed() {
    let _alone = alone();
    let mut program = Program::start("fork", 0);
    let target = program.process();
    program.say("fork");
    let report = run_check(vec![target]);
    let born: Vec<_> = report
        .observation
        .targets
        .iter()
        .filter(|target| target.started_in_window)
        .collect();
    assert_eq!(born.len(), 1, "{:#?}", report.text_lines());
    assert_eq!(born[0].process.parent, program.child.id());
}

/// The programs. As an ordinary test it does nothing.
#[test]
fn helper() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let mut words = part.split(' ');
    let core: usize = words.next().unwrap().parse().unwrap();
    pin(core);
    match words.next().unwrap() {
        "duty" => duty(words.next().unwrap().parse().unwrap()),
        "serve" => serve(),
        "load" => load(words.next().unwrap()),
        "fork" => fork(),
        other => panic!("no such part: {other}"),
    }
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).unwrap();
}

/// Asks for the core before others. Where sessions are scheduled as groups, niceness counts within the session only,
/// so the program takes a session of its own and asks for that. Refused, it gets what it gets.
fn favour() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::setpriority_process(None, -20);
    let _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// A line for the test, past the test harness's capture.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // A test that is gone needs no answer.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Answers `clocks` with the process's own CPU and wall time, on a thread of its own.
fn answer_clocks() {
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line == "clocks" {
                tell(&format!(
                    "clocks {} {}",
                    seconds(ClockId::ProcessCPUTime),
                    seconds(ClockId::Monotonic)
                ));
            }
        }
        // The parent is gone.
        std::process::abort();
    });
}

/// Works `percent` of every 10 ms by the wall clock.
fn duty(percent: u64) {
    favour();
    answer_clocks();
    tell("ready");
    let period = Duration::from_millis(10);
    let mut next = Instant::now();
    loop {
        let until = Instant::now() + period * u32::try_from(percent).unwrap() / 100;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        next += period;
        if percent < 100 {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        next = next.max(Instant::now());
    }
}

/// Answers each byte with a byte; blocked in read for most of the time.
fn serve() {
    answer_clocks();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    tell("ready");
    tell(&format!("port {}", listener.local_addr().unwrap().port()));
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    }
}

/// Ten requests a second, and a core full of its own work.
fn load(port: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    answer_clocks();
    tell("ready");
    loop {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let mut byte = [7];
        stream.write_all(&byte).unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
}

/// Starts a child half a second after it was told to, as a master does with a worker on reload.
fn fork() {
    tell("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut child = Command::new("sleep").arg("4").spawn().unwrap();
    child.wait().unwrap();
}
