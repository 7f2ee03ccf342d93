//! A recorder: started and known to record before anything is measured, ended after it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::arms::Arm;
use super::lab::Lab;
use super::proc;

/// Loading BPF programs takes a second on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// perf writes out its buffers, we name the last samples.
const END_LIMIT: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Where the programs are and where the recordings go.
pub struct Setup {
    pub binary: PathBuf,
    pub scratch: PathBuf,
}

/// A recorder at work. Dropping it ends it.
pub struct Recorder {
    child: Child,
    arm: Arm,
    said: PathBuf,
    output: PathBuf,
}

/// What a recorder told at its end.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// On-CPU samples taken.
    pub samples: u64,
    /// The document of `throughline record --json`.
    pub document: Option<Value>,
}

/// Asks a child to end as Ctrl-C would.
pub fn interrupt(child: &Child) -> Result<()> {
    interrupt_pid(child.id())
}

/// The same by process id; the caller has not reaped it.
pub fn interrupt_pid(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("no process id")?;
    Ok(kill_process(pid, Signal::INT)?)
}

impl Recorder {
    /// Starts the recorder of an arm on the core of the load and waits until it records; `None` when the arm has none.
    pub fn start(setup: &Setup, arm: Arm, lab: &Lab) -> Result<Option<Self>> {
        // Several record at the same time.
        let name = arm
            .label()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let output = setup.scratch.join(format!("{name}.recording"));
        let Some(words) = arm.command(&setup.binary, lab.worker, &output) else {
            return Ok(None);
        };
        let said = setup.scratch.join(format!("{name}.said"));
        let file = File::create(&said)?;
        let child = Command::new("taskset")
            .args(["--cpu-list", &lab.load_core.to_string()])
            .args(&words)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start taskset")?;
        let mut recorder = Self {
            child,
            arm,
            said,
            output,
        };
        recorder.wait_until_it_records()?;
        Ok(Some(recorder))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_records(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let records = if self.arm.is_perf() {
                proc::maps_perf_event(self.pid())
            } else {
                proc::has_perf_event(self.pid())
            };
            if records {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || begin.elapsed() > START_LIMIT {
                bail!("{} does not record: {}", self.arm.label(), self.words());
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn words(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Ends it and reads what it tells.
    pub fn finish(mut self) -> Result<Recording> {
        if self.child.try_wait()?.is_some() {
            bail!("{} ended too early: {}", self.arm.label(), self.words());
        }
        interrupt(&self.child)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > END_LIMIT {
                bail!("{} does not end", self.arm.label());
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        self.told()
    }

    /// What a recorder that has ended told.
    pub fn told(&self) -> Result<Recording> {
        let words = self.words();
        let recording = if self.arm.is_perf() {
            perf_samples(&words).map(|samples| Recording {
                samples,
                document: None,
            })
        } else {
            document(&words)
        };
        recording.with_context(|| format!("{} told nothing: {words}", self.arm.label()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for suffix in ["", "-wal", "-shm", ".old"] {
            let mut path = self.output.clone().into_os_string();
            path.push(suffix);
            let _ = std::fs::remove_file(path);
        }
    }
}

/// `[ perf record: Captured and wrote 1.234 MB perf.data (567 samples) ]`; the parenthesis is missing when there are none.
fn perf_samples(words: &str) -> Option<u64> {
    let (_, last) = words.rsplit_once("Captured and wrote")?;
    match last.split_once(" samples)") {
        Some((before, _)) => before.rsplit_once('(')?.1.parse().ok(),
        None => Some(0),
    }
}

fn document(words: &str) -> Option<Recording> {
    let document: Value = serde_json::from_str(words.get(words.find('{')?..)?).ok()?;
    Some(Recording {
        samples: document["ledger_on_cpu"]["taken"].as_u64()?,
        document: Some(document),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_tells_its_samples_in_its_last_line() {
        let words = "[ perf record: Woken up 3 times to write data ]\n\
                     [ perf record: Captured and wrote 0.912 MB /tmp/x (997 samples) ]\n";
        assert_eq!(perf_samples(words), Some(997));
        let none = "[ perf record: Captured and wrote 0.003 MB /tmp/x ]\n";
        assert_eq!(perf_samples(none), Some(0));
        assert_eq!(perf_samples("no permission"), None);
    }
}
