//! What a recorder needs for itself over one recording under load: CPU, memory; and how whole its stacks are.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::RATES_HZ;
use super::arms::Arm;
use super::lab::Lab;
use super::load::Load;
use super::proc::{self, BpfStatistics, Memory, ProcessCpu};
use super::recorder::{Recorder, Setup, interrupt_pid};

const WARM_UP: Duration = Duration::from_secs(2);
const LOOK_PAUSE: Duration = Duration::from_millis(50);
const END_LIMIT: Duration = Duration::from_secs(60);

pub struct Footprint {
    pub arm: Arm,
    pub rate_hz: u32,
    /// Length of the recording.
    pub seconds: f64,
    /// CPU time from the start of the process until it recorded.
    pub start_up_cpu_seconds: f64,
    /// CPU time of the whole process, until it has ended.
    pub cpu_seconds: f64,
    /// Its memory when it was last seen, and the most that it ever was.
    pub memory: Memory,
    /// What the kernel holds for its BPF maps; not part of the memory of the process.
    pub bpf_map_bytes: u64,
    /// Time that its programs at the scheduler's tracepoints ran, on all cores: what off-CPU recording adds, most of it to
    /// others than the worker when that is saturated.
    pub tracing_ns: u64,
    /// The document that it printed.
    pub document: Value,
}

impl Footprint {
    /// Share of one core over the recording, with what it took to start and to end.
    pub fn cpu_share(&self) -> f64 {
        self.cpu_seconds / self.seconds
    }

    /// The same without what it took to start.
    pub fn cpu_share_without_start_up(&self) -> f64 {
        (self.cpu_seconds - self.start_up_cpu_seconds) / self.seconds
    }

    /// Run time of the programs for off-CPU recording, as a share of one core.
    pub fn tracing_share(&self) -> f64 {
        self.tracing_ns as f64 / 1e9 / self.seconds
    }

    /// A figure of the document, with the path of keys to it.
    pub fn figure(&self, path: &[&str]) -> Option<f64> {
        let mut value = &self.document;
        for key in path {
            value = &value[*key];
        }
        value.as_f64()
    }
}

/// One recording of both kinds at each rate.
pub fn measure(setup: &Setup, length: Duration) -> Result<Vec<Footprint>> {
    let _statistics = BpfStatistics::on()?;
    let lab = Lab::start(&setup.binary)?;
    let _load = Load::start(&setup.binary, &lab, None)?;
    std::thread::sleep(WARM_UP);
    RATES_HZ
        .into_iter()
        .map(|rate_hz| {
            eprintln!("recording {rate_hz} Hz for {:.0} s", length.as_secs_f64());
            one(setup, &lab, rate_hz, length)
        })
        .collect()
}

fn one(setup: &Setup, lab: &Lab, rate_hz: u32, length: Duration) -> Result<Footprint> {
    let arm = Arm::Throughline {
        rate_hz,
        off_cpu: true,
    };
    let recorder = Recorder::start(setup, arm, lab)?.context("this arm has a recorder")?;
    let pid = recorder.pid();
    let start_up_cpu_seconds = ProcessCpu::of(pid)?.seconds;
    let begin = Instant::now();
    let mut memory = Memory::default();
    let (mut bpf_map_bytes, mut tracing_ns) = (0, 0);
    let mut interrupted = false;
    let cpu_seconds = loop {
        let cpu = ProcessCpu::of(pid)?;
        if cpu.ended {
            break cpu.seconds;
        }
        if let Some(now) = Memory::of(pid) {
            memory = now;
        }
        if !interrupted && begin.elapsed() >= length {
            bpf_map_bytes = proc::bpf_map_bytes(pid);
            tracing_ns = proc::tracing_program_ns(pid);
            interrupt_pid(pid)?;
            interrupted = true;
        }
        if begin.elapsed() > length + END_LIMIT {
            bail!("{} does not end", arm.label());
        }
        std::thread::sleep(LOOK_PAUSE);
    };
    let document = recorder.told()?.document.context("no document")?;
    Ok(Footprint {
        arm,
        rate_hz,
        seconds: document["seconds"].as_f64().context("no seconds")?,
        start_up_cpu_seconds,
        cpu_seconds,
        memory,
        bpf_map_bytes,
        tracing_ns,
        document,
    })
}
