//! The windows: stretches of some milliseconds, in each of which the clocks of one recorder run, or of none.
//!
//! ```text
//! incarnation:  gateway, load and all recorders start, their clocks are switched off | blocks of some seconds
//! block:        cycle, cycle, ... cycle
//! cycle:        one window for each arm and one without, in random order
//! window:       switch an arm's clocks on | 10 ms of the same endless load | switch them off
//! ```
//!
//! Neighbours on the machine make the same request cost twice as much from one second to the next, and half of that changes
//! slower than a cycle. So an arm is compared with the windows around it, some 100 times a block, and only the sums of a block
//! count: one log-ratio each, which no longer depend on each other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::arms::{ARMS, Arm};
use super::clocks::Clocks;
use super::lab::Lab;
use super::load::Load;
use super::proc::{SchedStat, Writes};
use super::recorder::{Recorder, Recording, Setup};
use super::shuffle::Shuffle;
use super::statistics::Estimate;

/// Load on a fresh gateway before its first window: its traces are compiled after some 10,000 requests. It also tells how
/// often a request writes.
const WARM_UP: Duration = Duration::from_secs(3);
/// Load with every recorder at work, so that each has named the stacks that it will meet.
const NAMING: Duration = Duration::from_secs(2);
const BLOCK: Duration = Duration::from_secs(6);
/// LuaJIT compiles differently in each incarnation of the gateway.
const INCARNATION: Duration = Duration::from_secs(150);
/// An interval needs two.
const BLOCKS_MIN: usize = 2;
/// From this share of wall time on that the worker waits for its core, others shape the result.
pub const RUN_DELAY_MAX: f64 = 0.05;
/// Below this share the worker is not saturated, and requests by second are not its CPU time by request.
pub const OCCUPANCY_MIN: f64 = 0.97;

pub struct Plan {
    pub budget: Duration,
    pub window: Duration,
    pub seed: u64,
}

/// Windows of one kind in one block.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    windows: u64,
    writes: u64,
    seconds: f64,
}

impl Sum {
    fn log_rate(&self) -> f64 {
        (self.writes as f64 / self.seconds).ln()
    }
}

/// Some seconds of windows.
#[derive(Default)]
struct Block {
    off: Sum,
    arms: BTreeMap<Arm, Sum>,
}

impl Block {
    /// Logarithm of the time by request over that without a recorder.
    fn log_cost(&self, arm: Arm) -> Option<f64> {
        Some(self.off.log_rate() - self.arms.get(&arm)?.log_rate())
    }
}

/// What one incarnation of the gateway did in all.
#[derive(Clone, Copy, Debug)]
struct Incarnation {
    seconds: f64,
    cpu_ns: u64,
    run_delay_ns: u64,
    writes_per_request: f64,
}

pub struct Windows {
    blocks: Vec<Block>,
    incarnations: Vec<Incarnation>,
    samples: BTreeMap<Arm, u64>,
    pub window: Duration,
    pub seed: u64,
    /// How long all of it took.
    pub elapsed: Duration,
}

pub fn measure(setup: &Setup, plan: &Plan) -> Result<Windows> {
    let begin = Instant::now();
    let mut shuffle = Shuffle::new(plan.seed);
    let mut windows = Windows {
        blocks: Vec::new(),
        incarnations: Vec::new(),
        samples: BTreeMap::new(),
        window: plan.window,
        seed: plan.seed,
        elapsed: Duration::ZERO,
    };
    while windows.blocks.len() < BLOCKS_MIN || begin.elapsed() + BLOCK < plan.budget {
        let left = plan.budget.saturating_sub(begin.elapsed());
        let length = left.clamp(BLOCK * BLOCKS_MIN as u32, INCARNATION);
        windows.incarnation(setup, length, &mut shuffle)?;
        eprintln!(
            "{} blocks in {} incarnations of the gateway after {:.0} s",
            windows.blocks.len(),
            windows.incarnations.len(),
            begin.elapsed().as_secs_f64()
        );
    }
    windows.elapsed = begin.elapsed();
    Ok(windows)
}

impl Windows {
    fn incarnation(
        &mut self,
        setup: &Setup,
        length: Duration,
        shuffle: &mut Shuffle,
    ) -> Result<()> {
        let lab = Lab::start(&setup.binary)?;
        let writes = Writes::of(lab.worker)?;
        let before = writes.now()?;
        let warm_up = Load::start(&setup.binary, &lab, Some(WARM_UP))?.finish()?;
        let writes_per_request = (writes.now()? - before) as f64 / warm_up as f64;

        let load = Load::start(&setup.binary, &lab, None)?;
        let recorders = start_recorders(setup, &lab)?;
        std::thread::sleep(NAMING);
        let clocks = recorders
            .iter()
            .map(|(arm, recorder)| {
                let clocks = Clocks::of_process(recorder.pid())?;
                clocks.switch(false)?;
                Ok((*arm, clocks))
            })
            .collect::<Result<BTreeMap<Arm, Clocks>>>()?;

        let (begin, account) = (Instant::now(), SchedStat::of(lab.worker)?);
        while begin.elapsed() < length {
            self.blocks
                .push(block(&writes, &clocks, self.window, shuffle)?);
        }
        let (seconds, end) = (begin.elapsed().as_secs_f64(), SchedStat::of(lab.worker)?);
        self.incarnations.push(Incarnation {
            seconds,
            cpu_ns: end.cpu_ns.saturating_sub(account.cpu_ns),
            run_delay_ns: end.run_delay_ns.saturating_sub(account.run_delay_ns),
            writes_per_request,
        });
        // The recorders end while the worker still has work, as they began.
        drop(clocks);
        for (arm, recorder) in recorders {
            let Recording { samples, .. } = recorder.finish().with_context(|| arm.label())?;
            *self.samples.entry(arm).or_default() += samples;
        }
        drop(load);
        Ok(())
    }

    /// The interval over the blocks of an arm's time by request over that without a recorder.
    pub fn estimate(&self, arm: Arm) -> Result<Estimate> {
        Estimate::of(&self.log_costs(arm))
    }

    /// One arm against another, in the same blocks.
    pub fn against(&self, arm: Arm, other: Arm) -> Result<Estimate> {
        let pairs = self.log_costs(arm).into_iter().zip(self.log_costs(other));
        let values: Vec<f64> = pairs.map(|(a, b)| a - b).collect();
        Estimate::of(&values)
    }

    /// One arm against perf, in the same blocks. perf opens four events where one samples; what switching them costs is taken
    /// off perf, not off us.
    pub fn against_perf(&self, arm: Arm, perf: Arm) -> Result<Estimate> {
        let values: Vec<f64> = self
            .blocks
            .iter()
            .filter_map(|block| {
                let switching = block.log_cost(Arm::Switching)?;
                Some(block.log_cost(arm)? - (block.log_cost(perf)? - switching))
            })
            .collect();
        Estimate::of(&values)
    }

    /// One a block.
    pub fn log_costs(&self, arm: Arm) -> Vec<f64> {
        let blocks = self.blocks.iter();
        blocks.filter_map(|block| block.log_cost(arm)).collect()
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub fn incarnations(&self) -> usize {
        self.incarnations.len()
    }

    /// Windows of an arm and their length in seconds.
    pub fn time_of(&self, arm: Arm) -> (u64, f64) {
        let sums = self.blocks.iter().filter_map(|block| block.arms.get(&arm));
        sums.fold((0, 0.0), |(windows, seconds), sum| {
            (windows + sum.windows, seconds + sum.seconds)
        })
    }

    /// Samples that an arm's recorder took; those of its first seconds, before its clocks were switched, are among them.
    pub fn samples(&self, arm: Arm) -> Option<u64> {
        self.samples.get(&arm).copied()
    }

    /// Time by request of the saturated worker without a recorder, in us.
    pub fn us_per_request(&self) -> f64 {
        let (writes, seconds) = self.blocks.iter().fold((0, 0.0), |(writes, seconds), b| {
            (writes + b.off.writes, seconds + b.off.seconds)
        });
        1e6 * seconds * self.writes_per_request() / writes as f64
    }

    pub fn writes_per_request(&self) -> f64 {
        let all: f64 = self.incarnations.iter().map(|i| i.writes_per_request).sum();
        all / self.incarnations.len() as f64
    }

    /// Share of wall time that the worker waited for its core.
    pub fn run_delay_share(&self) -> f64 {
        self.share_of_time(|one| one.run_delay_ns)
    }

    /// Share of wall time that the worker ran or would have run; near 1 it is saturated.
    pub fn occupancy(&self) -> f64 {
        self.share_of_time(|one| one.cpu_ns + one.run_delay_ns)
    }

    fn share_of_time(&self, of: impl Fn(&Incarnation) -> u64) -> f64 {
        let seconds: f64 = self.incarnations.iter().map(|one| one.seconds).sum();
        self.incarnations.iter().map(of).sum::<u64>() as f64 / 1e9 / seconds
    }

    /// Why the ratios are not to be trusted.
    pub fn distrust(&self) -> Option<String> {
        let (delay, occupancy) = (self.run_delay_share(), self.occupancy());
        if delay > RUN_DELAY_MAX {
            return Some(format!(
                "the worker waited for its core {:.1} % of the time (at most {:.0} %)",
                100.0 * delay,
                100.0 * RUN_DELAY_MAX
            ));
        }
        (occupancy < OCCUPANCY_MIN).then(|| {
            format!(
                "the worker was busy {occupancy:.3} of the time (at least {OCCUPANCY_MIN}): its requests by second are not its capacity"
            )
        })
    }
}

fn start_recorders(setup: &Setup, lab: &Lab) -> Result<Vec<(Arm, Recorder)>> {
    let mut recorders = Vec::new();
    for arm in ARMS {
        if let Some(recorder) = Recorder::start(setup, arm, lab)? {
            recorders.push((arm, recorder));
        }
    }
    Ok(recorders)
}

fn block(
    writes: &Writes,
    clocks: &BTreeMap<Arm, Clocks>,
    length: Duration,
    shuffle: &mut Shuffle,
) -> Result<Block> {
    let mut block = Block::default();
    let begin = Instant::now();
    while begin.elapsed() < BLOCK {
        let mut order: Vec<Option<Arm>> = ARMS.into_iter().map(Some).chain([None]).collect();
        shuffle.order(&mut order);
        for arm in order {
            let clocks = arm.and_then(|arm| clocks.get(&arm));
            let sum = arm.map_or(&mut block.off, |arm| block.arms.entry(arm).or_default());
            window(writes, clocks, length, sum)?;
        }
    }
    ensure!(block.off.writes > 0, "the worker did nothing");
    Ok(block)
}

fn window(writes: &Writes, clocks: Option<&Clocks>, length: Duration, sum: &mut Sum) -> Result<()> {
    if let Some(clocks) = clocks {
        clocks.switch(true)?;
    }
    let (before, begin) = (writes.now()?, Instant::now());
    std::thread::sleep(length);
    let (after, seconds) = (writes.now()?, begin.elapsed().as_secs_f64());
    if let Some(clocks) = clocks {
        clocks.switch(false)?;
    }
    sum.windows += 1;
    sum.writes += after - before;
    sum.seconds += seconds;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_time_by_request_over_that_without_a_recorder() {
        let sum = |writes, seconds| Sum {
            windows: 1,
            writes,
            seconds,
        };
        // 2 ms by request without, 2.5 ms with.
        let block = Block {
            off: sum(1000, 2.0),
            arms: BTreeMap::from([(Arm::Off, sum(400, 1.0))]),
        };
        let cost = block.log_cost(Arm::Off).expect("measured");
        assert!((cost.exp() - 1.25).abs() < 1e-12);
        assert_eq!(block.log_cost(Arm::Switching), None);
    }
}
