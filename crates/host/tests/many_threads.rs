//! What sampling costs when the target has very many threads.
//!
//! The target is this test binary, run again as [`helper`].

use std::{
    io::{BufRead, BufReader, Read, Write},
    ops::ControlFlow,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use throughline_host::{PeerChoice, Plan, Selector, find_processes, sample};

const THREADS: usize = 5000;
const PART: &str = "THROUGHLINE_HOST_TEST_PART";

fn own_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn five_thousand_threads_are_read_at_the_start_and_at_the_end_only() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["helper", "--exact", "--nocapture"])
        .env(PART, "threads")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let started = lines.find_map(|line| {
        line.split_once("started ")
            .map(|(_, count)| count.trim().to_owned())
    });
    let started: usize = started.unwrap().parse().unwrap();
    if started < THREADS {
        eprintln!("SKIPPED: {THREADS} threads in one process: only {started} could be started");
    } else {
        let selector = Selector {
            pids: vec![child.id()],
            ..Selector::default()
        };
        let plan = Plan {
            targets: find_processes(&selector).unwrap(),
            upstream: PeerChoice::FindOnConnections,
            load: PeerChoice::FindOnConnections,
            duration: Duration::from_millis(1200),
            interval: Duration::from_millis(100),
        };
        let before = own_cpu_seconds();
        let observation = sample(&plan, &mut |_| ControlFlow::Continue(())).unwrap();
        let used = own_cpu_seconds() - before;
        eprintln!("{THREADS} threads, whole window: {used:.3} s of CPU");
        let target = &observation.targets[0];
        // The main thread and the test harness's are more.
        assert!(target.threads.len() >= THREADS);
        assert!(
            target
                .threads
                .iter()
                .all(|thread| thread.voluntary_switches.is_ok())
        );
        // Read at start and end, never in between.
        assert_eq!(observation.looks, 0);
        assert!(observation.looks_limited.is_some());
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Starts the threads and holds them until its parent is gone. As an ordinary test it does nothing.
#[test]
fn helper() {
    if std::env::var(PART).is_err() {
        return;
    }
    let started = (0..THREADS)
        .map_while(|_| {
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(|| {
                    loop {
                        std::thread::park()
                    }
                })
                .ok()
        })
        .count();
    let mut out = std::io::stdout().lock();
    writeln!(out, "started {started}")
        .and_then(|()| out.flush())
        .unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::abort();
}
