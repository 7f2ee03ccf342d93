//! What a recording is promised to cost, and whether it does.

use anyhow::Result;

use super::RATES_HZ;
use super::arms::{Arm, on_cpu};
use super::footprint::Footprint;
use super::statistics::Estimate;
use super::windows::Windows;

/// Worker CPU per request over off, percent, at 499 Hz.
const WORKER_CPU_MAX_PERCENT: f64 = 1.5;
/// Mean time of the BPF program per on-CPU sample, microseconds.
const BPF_US_MAX: f64 = 12.0;
/// Recorder CPU, percent of a core, by rate.
const RECORDER_CPU_MAX_PERCENT: [(u32, f64); 2] = [(99, 1.0), (499, 5.0)];
/// Peak resident memory of the recorder.
const MEMORY_MAX_BYTES: u64 = 150_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Holds,
    DoesNotHold,
    /// The interval reaches to both sides of the limit, there is no reading, or the machine was too busy.
    Undecided,
}

impl Outcome {
    pub fn label(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::Undecided => "not decided",
        }
    }

    /// Neighbours that take the core away make every time longer, and leave memory as it is.
    fn when_contended(self, depends_on_time: bool) -> Self {
        if depends_on_time {
            Self::Undecided
        } else {
            self
        }
    }

    /// An interval, in percent, against an upper limit.
    fn of_interval(estimate: &Estimate, limit: f64) -> Self {
        if estimate.high_percent() <= limit {
            Self::Holds
        } else if estimate.low_percent() > limit {
            Self::DoesNotHold
        } else {
            Self::Undecided
        }
    }

    fn of_reading(reading: Option<f64>, limit: f64) -> Self {
        match reading {
            Some(reading) if reading <= limit => Self::Holds,
            Some(_) => Self::DoesNotHold,
            None => Self::Undecided,
        }
    }
}

/// A promise with what was read.
pub struct Target {
    pub what: String,
    pub limit: String,
    pub reading: String,
    pub outcome: Outcome,
    depends_on_time: bool,
}

pub fn judge(windows: &Windows, footprints: &[Footprint]) -> Vec<Target> {
    let mut targets = Vec::new();
    targets.push(of_interval(
        format!("worker CPU per request, {}, over off", on_cpu(499).label()),
        format!("<= {WORKER_CPU_MAX_PERCENT} %"),
        &windows.estimate(on_cpu(499)),
        WORKER_CPU_MAX_PERCENT,
    ));
    for rate_hz in RATES_HZ {
        let (ours, perf) = (on_cpu(rate_hz), Arm::PerfDwarf { rate_hz });
        targets.push(of_interval(
            format!(
                "worker CPU per request, {} over {}",
                ours.label(),
                perf.label()
            ),
            "< 0 %".to_owned(),
            &windows.against_perf(ours, perf),
            0.0,
        ));
    }
    targets.extend(footprints.iter().flat_map(of_footprint));
    if windows.distrust().is_some() {
        for target in &mut targets {
            target.outcome = target.outcome.when_contended(target.depends_on_time);
        }
    }
    targets
}

fn of_interval(what: String, limit: String, estimate: &Result<Estimate>, most: f64) -> Target {
    let (reading, outcome) = match estimate {
        Ok(estimate) => (
            format!(
                "{:+.2} % [{:+.2}, {:+.2}]",
                estimate.mean_percent(),
                estimate.low_percent(),
                estimate.high_percent()
            ),
            Outcome::of_interval(estimate, most),
        ),
        Err(error) => (error.to_string(), Outcome::Undecided),
    };
    Target {
        what,
        limit,
        reading,
        outcome,
        depends_on_time: true,
    }
}

fn of_footprint(footprint: &Footprint) -> Vec<Target> {
    let rate = footprint.rate_hz;
    let bpf_us = footprint
        .figure(&["bpf", "ns_per_sample_mean"])
        .map(|ns| ns / 1e3);
    let cpu = 100.0 * footprint.cpu_share();
    let peak = footprint.memory.peak;
    let mut targets = vec![
        Target {
            what: format!("BPF time per on-CPU sample, {rate} Hz"),
            limit: format!("<= {BPF_US_MAX} us"),
            reading: bpf_us.map_or_else(|| "no sample".to_owned(), |us| format!("{us:.1} us")),
            outcome: Outcome::of_reading(bpf_us, BPF_US_MAX),
            depends_on_time: true,
        },
        Target {
            what: format!("recorder memory, {rate} Hz"),
            limit: format!("<= {} MB", MEMORY_MAX_BYTES / 1_000_000),
            reading: format!("{:.0} MB", peak as f64 / 1e6),
            outcome: Outcome::of_reading(
                (peak > 0).then_some(peak as f64),
                MEMORY_MAX_BYTES as f64,
            ),
            depends_on_time: false,
        },
    ];
    for (_, most) in RECORDER_CPU_MAX_PERCENT
        .iter()
        .filter(|(of, _)| *of == rate)
    {
        targets.push(Target {
            what: format!("recorder CPU, start-up included, {rate} Hz"),
            limit: format!("<= {most} % of a core"),
            reading: format!(
                "{cpu:.2} % ({:.2} % without start-up)",
                100.0 * footprint.cpu_share_without_start_up()
            ),
            outcome: Outcome::of_reading(Some(cpu), *most),
            depends_on_time: true,
        });
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half_width: f64) -> Estimate {
        Estimate {
            count: 9,
            mean,
            half_width,
            deviation: 0.0,
        }
    }

    #[test]
    fn an_interval_that_reaches_over_the_limit_decides_nothing() {
        assert_eq!(
            Outcome::of_interval(&estimate(0.010, 0.002), 1.5),
            Outcome::Holds
        );
        assert_eq!(
            Outcome::of_interval(&estimate(0.014, 0.002), 1.5),
            Outcome::Undecided
        );
        assert_eq!(
            Outcome::of_interval(&estimate(0.030, 0.002), 1.5),
            Outcome::DoesNotHold
        );
    }

    #[test]
    fn a_busy_machine_decides_nothing_that_is_a_time() {
        assert_eq!(Outcome::Holds.when_contended(true), Outcome::Undecided);
        assert_eq!(Outcome::Holds.when_contended(false), Outcome::Holds);
    }

    #[test]
    fn no_reading_is_no_success() {
        assert_eq!(Outcome::of_reading(None, 12.0), Outcome::Undecided);
    }
}
