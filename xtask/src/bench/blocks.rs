//! The interleaved slices: blocks of one gateway incarnation each, in which every arm stands between two slices without a
//! recorder.
//!
//! ```text
//! block:  off  arm  off  arm  off ... arm  off        the arms in random order, every second block in the reverse of the last
//! slice:  start the recorder, wait until it records | warm-up load, drained | measured load, drained | end the recorder
//! ```
//!
//! The worker sleeps at both ends of the measured load, so its CPU time and its requests are of exactly the same work. The
//! order turns from block to block so that neither drift nor what an arm leaves behind favours one of them. One block is one
//! incarnation, which is the unit of replication: LuaJIT compiles differently in each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::arms::{ARMS, Arm};
use super::lab::Lab;
use super::load::Load;
use super::proc::SchedStat;
use super::recorder::{Recorder, Recording, Setup};
use super::shuffle::Shuffle;
use super::statistics::Estimate;

/// Load on a fresh gateway before its first slice: its traces are compiled after some 10,000 requests.
const FIRST_WARM_UP: Duration = Duration::from_secs(2);
/// Load before each slice that is not measured: the recorder meets its first stacks, which it must name, and the caches fill.
const WARM_UP: Duration = Duration::from_millis(600);
/// An interval needs two.
const BLOCKS_MIN: usize = 2;
/// That many blocks one after the other that fail are no accident.
const FAILURES_MAX: usize = 3;
/// From this share of wall time on that the worker waits for its core, others shape the result (experiment guard).
pub const RUN_DELAY_MAX: f64 = 0.05;

pub struct Plan {
    pub budget: Duration,
    pub slice: Duration,
    pub seed: u64,
}

/// One measured load.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub requests: u64,
    pub seconds: f64,
    pub cpu_ns: u64,
    pub run_delay_ns: u64,
    pub generator_cpu_seconds: f64,
}

impl Slice {
    fn cpu_ns_per_request(&self) -> f64 {
        self.cpu_ns as f64 / self.requests as f64
    }

    fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

/// An arm's slice and what it is compared with.
pub struct Run {
    pub arm: Arm,
    pub slice: Slice,
    /// Logarithm of CPU per request over the mean of those of the two slices around it.
    pub log_cpu: f64,
    /// The same of requests per second.
    pub log_throughput: f64,
    pub recording: Option<Recording>,
    /// CPU time of the worker while it was recorded.
    pub recorded_cpu_ns: u64,
}

#[derive(Default)]
pub struct Block {
    pub runs: Vec<Run>,
    pub offs: Vec<Slice>,
}

pub struct Blocks {
    pub blocks: Vec<Block>,
    /// Blocks that were given up, with the reason of each.
    pub failed: Vec<String>,
    pub slice: Duration,
    pub seed: u64,
    /// How long all of it took.
    pub elapsed: Duration,
}

pub fn measure(setup: &Setup, plan: &Plan) -> Result<Blocks> {
    let begin = Instant::now();
    let mut shuffle = Shuffle::new(plan.seed);
    let mut order = ARMS;
    let mut result = Blocks {
        blocks: Vec::new(),
        failed: Vec::new(),
        slice: plan.slice,
        seed: plan.seed,
        elapsed: Duration::ZERO,
    };
    let mut failures = 0;
    let mut turn = 0usize;
    while result.blocks.len() < BLOCKS_MIN || has_time(begin.elapsed(), plan.budget, turn) {
        if turn.is_multiple_of(2) {
            shuffle.order(&mut order);
        } else {
            order.reverse();
        }
        turn += 1;
        match block(setup, plan.slice, &order) {
            Ok(block) => {
                failures = 0;
                result.blocks.push(block);
                eprintln!(
                    "block {turn} done after {:.0} s",
                    begin.elapsed().as_secs_f64()
                );
            }
            Err(error) => {
                failures += 1;
                eprintln!("block {turn} given up: {error:#}");
                ensure!(failures < FAILURES_MAX, "{error:#}");
                result.failed.push(format!("{error:#}"));
            }
        }
    }
    result.elapsed = begin.elapsed();
    Ok(result)
}

/// Whether another block, as long as those before, fits into the time.
fn has_time(elapsed: Duration, budget: Duration, blocks: usize) -> bool {
    let one = elapsed.as_secs_f64() / blocks.max(1) as f64;
    elapsed.as_secs_f64() + one <= budget.as_secs_f64()
}

fn block(setup: &Setup, length: Duration, order: &[Arm]) -> Result<Block> {
    let lab = Lab::start(&setup.binary)?;
    Load::start(&setup.binary, &lab, Some(FIRST_WARM_UP))?.finish()?;
    let mut block = Block::default();
    let mut before = slice(setup, &lab, length)?;
    block.offs.push(before);
    for &arm in order {
        let recorder = Recorder::start(setup, arm, &lab)?;
        let cpu_before = SchedStat::of(lab.worker)?.cpu_ns;
        let measured = slice(setup, &lab, length).with_context(|| arm.label())?;
        let cpu_after = SchedStat::of(lab.worker)?.cpu_ns;
        let recording = recorder.map(Recorder::finish).transpose()?;
        let after = slice(setup, &lab, length)?;
        let against = |value: fn(&Slice) -> f64| {
            value(&measured).ln() - f64::midpoint(value(&before).ln(), value(&after).ln())
        };
        block.runs.push(Run {
            arm,
            slice: measured,
            log_cpu: against(Slice::cpu_ns_per_request),
            log_throughput: against(Slice::requests_per_second),
            recording,
            recorded_cpu_ns: cpu_after.saturating_sub(cpu_before),
        });
        block.offs.push(after);
        before = after;
    }
    Ok(block)
}

/// A warm-up and a measured load; the worker sleeps before, between and after them.
fn slice(setup: &Setup, lab: &Lab, length: Duration) -> Result<Slice> {
    Load::start(&setup.binary, lab, Some(WARM_UP))?.finish()?;
    let before = SchedStat::of(lab.worker)?;
    let load = Load::start(&setup.binary, lab, Some(length))?.finish()?;
    let after = SchedStat::of(lab.worker)?;
    Ok(Slice {
        requests: load.requests,
        seconds: load.seconds,
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns).max(1),
        run_delay_ns: after.run_delay_ns.saturating_sub(before.run_delay_ns),
        generator_cpu_seconds: load.generator_cpu_seconds,
    })
}

impl Blocks {
    pub fn runs(&self, arm: Arm) -> impl Iterator<Item = &Run> {
        let runs = self.blocks.iter().flat_map(|block| &block.runs);
        runs.filter(move |run| run.arm == arm)
    }

    /// The interval of one figure of an arm over the blocks.
    pub fn estimate(&self, arm: Arm, figure: impl Fn(&Run) -> f64) -> Result<Estimate> {
        let values: Vec<f64> = self.runs(arm).map(figure).collect();
        Estimate::of(&values)
    }

    /// CPU per request of one arm over another's, paired within blocks.
    pub fn against(&self, arm: Arm, other: Arm) -> Result<Estimate> {
        let pairs = self.runs(arm).zip(self.runs(other));
        let values: Vec<f64> = pairs.map(|(a, b)| a.log_cpu - b.log_cpu).collect();
        Estimate::of(&values)
    }

    /// Sums of all slices, with and without a recorder.
    pub fn all(&self) -> Totals {
        let runs = self.blocks.iter().flat_map(|block| &block.runs);
        let offs = self.blocks.iter().flat_map(|block| &block.offs);
        Totals::of(runs.map(|run| &run.slice).chain(offs))
    }

    /// Sums of the slices without a recorder.
    pub fn offs(&self) -> Totals {
        Totals::of(self.blocks.iter().flat_map(|block| &block.offs))
    }

    /// Sums of the slices of one arm.
    pub fn totals(&self, arm: Arm) -> Totals {
        Totals::of(self.runs(arm).map(|run| &run.slice))
    }

    /// On-CPU samples by second of the worker's CPU time; `None` for an arm without a recorder.
    pub fn samples_per_second(&self, arm: Arm) -> Option<f64> {
        let (samples, ns) = self
            .runs(arm)
            .filter_map(|run| Some((run.recording.as_ref()?.samples, run.recorded_cpu_ns)))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (ns > 0).then(|| samples as f64 / (ns as f64 / 1e9))
    }

    /// The worker waited too long for its core for the result to be trusted.
    pub fn is_contended(&self) -> bool {
        self.all().run_delay_share() > RUN_DELAY_MAX
    }
}

/// Sums over slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub slices: u64,
    requests: u64,
    seconds: f64,
    cpu_ns: u64,
    run_delay_ns: u64,
    generator_cpu_seconds: f64,
}

impl Totals {
    fn of<'a>(slices: impl Iterator<Item = &'a Slice>) -> Self {
        let mut totals = Self::default();
        for slice in slices {
            totals.slices += 1;
            totals.requests += slice.requests;
            totals.seconds += slice.seconds;
            totals.cpu_ns += slice.cpu_ns;
            totals.run_delay_ns += slice.run_delay_ns;
            totals.generator_cpu_seconds += slice.generator_cpu_seconds;
        }
        totals
    }

    /// Share of wall time that the worker waited for its core.
    pub fn run_delay_share(&self) -> f64 {
        self.run_delay_ns as f64 / 1e9 / self.seconds
    }

    /// Share of wall time that the worker ran or would have run; near 1 it is saturated.
    pub fn occupancy(&self) -> f64 {
        (self.cpu_ns + self.run_delay_ns) as f64 / 1e9 / self.seconds
    }

    pub fn generator_share(&self) -> f64 {
        self.generator_cpu_seconds / self.seconds
    }

    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.requests as f64
    }

    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_would_end_after_the_time_is_not_begun() {
        let seconds = Duration::from_secs;
        assert!(has_time(seconds(100), seconds(150), 2));
        assert!(!has_time(seconds(101), seconds(150), 2));
    }

    #[test]
    fn shares_are_of_wall_time() {
        let slice = Slice {
            requests: 1000,
            seconds: 2.0,
            cpu_ns: 1_800_000_000,
            run_delay_ns: 200_000_000,
            generator_cpu_seconds: 1.0,
        };
        let totals = Totals::of([slice, slice].iter());
        assert!((totals.run_delay_share() - 0.1).abs() < 1e-12);
        assert!((totals.occupancy() - 1.0).abs() < 1e-12);
        assert!((totals.generator_share() - 0.5).abs() < 1e-12);
        assert!((totals.cpu_us_per_request() - 1800.0).abs() < 1e-9);
    }
}
