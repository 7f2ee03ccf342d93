//! A recorder in a process of its own, so that a test can stop it, kill it, take descriptors away from it, put it into a namespace
//! and look at its memory. The process is the test binary again, told to run the one ignored test that calls [`serve`].

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use throughline_profile::{Capture, Flags, Profile, SampleKind, escape};
use throughline_record::{Keeper, Progress, RecordError, RecordPlan, Recorded, record};

/// What the recorder may use at most, in KiB: the promise is 150 MB.
pub const MEMORY_MAX_KIB: u64 = 150_000_000 / 1024;
/// The name of the ignored test in every binary that starts recorders.
const TEST: &str = "recorder_process";
const PLAN: &str = "THROUGHLINE_TEST_RECORDER";

/// What to record, as it goes through the environment: `KEY=VALUE` with spaces between.
pub struct Order<'a> {
    pub pids: &'a [u32],
    pub seconds: f64,
    pub rate_hz: u32,
    pub min_block_us: u64,
    /// Goes before the test binary: `prlimit --nofile=600`, `unshare --pid`.
    pub wrapper: &'a [&'a str],
}

impl Default for Order<'_> {
    fn default() -> Self {
        Self {
            pids: &[],
            seconds: 2.0,
            rate_hz: 499,
            min_block_us: 1000,
            wrapper: &[],
        }
    }
}

/// A running recorder; it is killed when the value is dropped.
pub struct Recorder {
    child: Child,
    lines: Receiver<String>,
    started: Instant,
    /// The recorder's own process id, which differs from the child's when that is a wrapper.
    pub pid: u32,
    /// From its start until everything was attached.
    pub until_recording: Duration,
}

/// What a recorder said at its end.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why it could not record, when it could not.
    pub error: Option<String>,
    pub numbers: BTreeMap<String, u64>,
    /// On-CPU samples by the names of the frames that they hold, escaped.
    pub frames: BTreeMap<String, u64>,
    pub warnings: Vec<String>,
    pub took: Duration,
}

impl Recorder {
    /// Starts a recorder and waits until it records. `None`, after a word on standard error, where the machine cannot.
    pub fn start(order: &Order<'_>) -> Option<Self> {
        let binary = env::current_exe().expect("the test binary has a path");
        let pids: Vec<String> = order.pids.iter().map(ToString::to_string).collect();
        let mut words: Vec<String> = ["setpriv", "--pdeathsig", "KILL"]
            .map(str::to_owned)
            .to_vec();
        words.extend(order.wrapper.iter().map(|&word| word.to_owned()));
        words.push(binary.to_str().expect("a path of this test").to_owned());
        words.extend(
            [
                "--exact",
                TEST,
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ]
            .map(str::to_owned),
        );
        let (program, arguments) = words.split_first().expect("there are words");
        let mut child = Command::new(program)
            .args(arguments)
            .env("RUST_BACKTRACE", "0")
            .env(
                PLAN,
                format!(
                    "pids={} seconds={} rate={} min_block_us={}",
                    pids.join(","),
                    order.seconds,
                    order.rate_hz,
                    order.min_block_us
                ),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let output = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut this = Self {
            pid: child.id(),
            child,
            lines,
            started: Instant::now(),
            until_recording: Duration::ZERO,
        };
        loop {
            let line = this
                .line(Duration::from_secs(60))
                .expect("the recorder says what it does");
            if let Some(pid) = line.strip_prefix("RECORDING ") {
                this.pid = pid.parse().expect("a process id");
                this.until_recording = this.started.elapsed();
                return Some(this);
            }
            if let Some(reason) = line.strip_prefix("SKIPPED ") {
                eprintln!("SKIPPED: ebpf: {reason}");
                return None;
            }
            assert!(!line.starts_with("ERROR "), "{line}");
        }
    }

    fn line(&mut self, patience: Duration) -> Option<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => panic!("the recorder said nothing for {patience:?}"),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for its end; fails when it did not end well.
    pub fn finish(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(line) = self.line(Duration::from_secs(60)) {
            let Some((key, rest)) = line.split_once(' ') else {
                continue;
            };
            match key {
                "NUMBER" => {
                    if let Some((name, number)) = rest.split_once(' ') {
                        outcome
                            .numbers
                            .insert(name.to_owned(), number.parse().expect("a number"));
                    }
                }
                "FRAME" => {
                    if let Some((number, name)) = rest.split_once(' ') {
                        outcome
                            .frames
                            .insert(name.to_owned(), number.parse().expect("a number"));
                    }
                }
                "WARNING" => outcome.warnings.push(rest.to_owned()),
                "ERROR" => outcome.error = Some(rest.to_owned()),
                _ => {}
            }
        }
        outcome.took = self.started.elapsed();
        let status = self.child.wait().expect("the recorder can be waited for");
        assert!(status.success(), "the recorder ended with {status}");
        outcome
    }

    /// Sends a signal to the recorder itself.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([&format!("-{name}"), &self.pid.to_string()])
            .status();
        assert!(done.is_ok_and(|status| status.success()));
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(mut self) {
        self.signal("KILL");
        let _ = self.child.wait();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = Command::new("kill")
                .args(["-KILL", &self.pid.to_string()])
                .stderr(Stdio::null())
                .status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Outcome {
    pub fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// On-CPU samples that hold a frame of this name.
    pub fn holding(&self, name: &str) -> u64 {
        self.frames.get(name).copied().unwrap_or(0)
    }

    /// Fails unless the ledger adds up, every sample that it says was kept was kept, and the recorder stayed small.
    pub fn assert_sound(&self) {
        assert_eq!(self.error, None);
        let lost: u64 = self
            .numbers
            .iter()
            .filter(|(name, _)| name.starts_with("lost."))
            .map(|(_, n)| n)
            .sum();
        assert_eq!(
            self.number("taken"),
            self.number("kept") + lost,
            "{:?}",
            self.numbers
        );
        assert_eq!(
            self.number("kept"),
            self.number("samples"),
            "{:?}",
            self.numbers
        );
        assert_eq!(self.number("lost.in_flight"), 0);
        self.assert_small();
    }

    /// Fails when the recorder used more memory than is promised.
    pub fn assert_small(&self) {
        let memory = self.number("memory_kib");
        assert!(memory > 0 && memory <= MEMORY_MAX_KIB, "{memory} KiB");
    }
}

/// Counts samples and lets them go, as a keeper that stores them does.
#[derive(Default)]
struct Count {
    begun: bool,
    samples: u64,
    complete: u64,
    on_cpu: u64,
    frames: BTreeMap<String, u64>,
}

impl Keeper for Count {
    fn flush(&mut self, profile: &mut Profile) -> Result<(), Box<dyn Error + Send + Sync>> {
        for sample in profile.samples.drain() {
            self.samples += 1;
            if sample.kind != SampleKind::OnCpu {
                continue;
            }
            self.on_cpu += 1;
            let cut = [Flags::STACK_TRUNCATED, Flags::NATIVE_UNWIND_INCOMPLETE];
            self.complete += u64::from(!cut.into_iter().any(|flag| sample.flags.contains(flag)));
            let mut names: Vec<&str> = sample
                .stack
                .map(|stack| {
                    profile
                        .stacks
                        .frames_leaf_first(stack)
                        .map(|frame| profile.strings.get(profile.frames.get(frame).name))
                        .collect()
                })
                .unwrap_or_default();
            names.sort_unstable();
            names.dedup();
            for name in names {
                *self.frames.entry(escape(name).into_owned()).or_default() += 1;
            }
        }
        Ok(())
    }

    fn go_on(&mut self, _: Progress) -> bool {
        if !self.begun {
            self.begun = true;
            say(&format!("RECORDING {}", own_pid()));
        }
        true
    }
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").expect("the test reads");
    output.flush().expect("the test reads");
}

/// The process id in the namespace of the test, which may be further out than the recorder's.
fn own_pid() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("NSpid:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .expect("Linux states it since 4.1")
}

fn own_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .expect("Linux states it")
}

/// Records what the environment says; without an order, as when all ignored tests are run, nothing happens.
pub fn serve() {
    let Ok(order) = env::var(PLAN) else { return };
    // What the test harness wrote has no end of line yet.
    say("");
    let get = |key: &str| {
        order
            .split(' ')
            .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_else(|| panic!("{key} is missing in {order:?}"))
    };
    let plan = RecordPlan {
        pids: get("pids")
            .split(',')
            .map(|pid| pid.parse().expect("a process id"))
            .collect(),
        duration: Some(Duration::from_secs_f64(
            get("seconds").parse().expect("seconds"),
        )),
        rate_hz: get("rate").parse().expect("a rate"),
        min_block: Duration::from_micros(get("min_block_us").parse().expect("microseconds")),
        beyond_safe: true,
        ..RecordPlan::default()
    };
    let mut count = Count::default();
    match record(&plan, Capture::default(), &mut count) {
        Ok(recorded) => tell(&count, &recorded),
        Err(RecordError::Programs(error)) => say(&format!("SKIPPED {error}")),
        Err(error) => say(&format!("ERROR {error}")),
    }
}

fn tell(count: &Count, recorded: &Recorded) {
    let profile = &recorded.profile;
    let number = |name: &str, number: u64| say(&format!("NUMBER {name} {number}"));
    number("taken", profile.ledger.taken);
    number("kept", profile.ledger.kept);
    number("taken_on_cpu", profile.capture.ledger_on_cpu.taken);
    for (reason, &lost) in &profile.ledger.lost {
        number(&format!("lost.{reason}"), lost);
    }
    number("samples", count.samples);
    number("on_cpu", count.on_cpu);
    number("complete", count.complete);
    number("targets", profile.capture.targets.len() as u64);
    let cpu_ns = profile
        .capture
        .targets
        .iter()
        .filter_map(|target| target.cpu_ns)
        .sum();
    number("cpu_ns", cpu_ns);
    for warning in &profile.capture.warnings {
        say(&format!("WARNING {}", escape(warning)));
    }
    for (name, samples) in &count.frames {
        say(&format!("FRAME {samples} {name}"));
    }
    number("memory_kib", own_memory_kib());
}
