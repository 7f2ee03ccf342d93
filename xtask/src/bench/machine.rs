//! The conditions under which a run was measured, from `/proc` (proc(5)).

use std::fs;

use anyhow::{Context, Result};

/// One look at the machine.
pub struct Reading {
    load_average: f64,
    steal_ticks: u64,
    irq_ticks: u64,
    all_ticks: u64,
}

/// What changed between two looks.
pub struct Conditions {
    pub load_average_begin: f64,
    pub load_average_end: f64,
    /// Share of all cores' time that the hypervisor took.
    pub steal_share: f64,
    /// The kernel accounts interrupts apart from the interrupted thread: then the cost of a sampling interrupt is not in the
    /// worker's CPU time, and every ratio here is too good.
    pub interrupts_apart: bool,
    pub kernel: String,
    pub cpu: String,
}

impl Reading {
    pub fn now() -> Result<Self> {
        let averages = fs::read_to_string("/proc/loadavg")?;
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&averages, &stat).context("/proc/loadavg or /proc/stat cannot be read")
    }

    fn parse(averages: &str, stat: &str) -> Option<Self> {
        // user nice system idle iowait irq softirq steal, and guest times that are part of the first two.
        let ticks: Vec<u64> = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_ascii_whitespace()
            .take(8)
            .filter_map(|field| field.parse().ok())
            .collect();
        Some(Self {
            load_average: averages.split_ascii_whitespace().next()?.parse().ok()?,
            irq_ticks: *ticks.get(5)?,
            steal_ticks: *ticks.get(7)?,
            all_ticks: ticks.iter().sum(),
        })
    }
}

impl Conditions {
    pub fn between(begin: &Reading, end: &Reading) -> Self {
        let ticks = end.all_ticks.saturating_sub(begin.all_ticks).max(1);
        let steal = end.steal_ticks.saturating_sub(begin.steal_ticks);
        Self {
            load_average_begin: begin.load_average,
            load_average_end: end.load_average,
            steal_share: steal as f64 / ticks as f64,
            // Without CONFIG_IRQ_TIME_ACCOUNTING (and on a machine whose clock forbids it) this stays at 0 or nearly.
            interrupts_apart: end.irq_ticks > begin.irq_ticks + ticks / 10_000,
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_model(),
        }
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or_else(
            || "unknown CPU".to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_and_interrupts_are_read_from_their_columns() {
        let at = |stat: &str| Reading::parse("0.50 0.4 0.3 1/2 3", stat).expect("well formed");
        let begin = at("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1");
        let end = at("cpu  500 100 100 200 0 10 40 50 7 7\ncpu0 1");
        let conditions = Conditions::between(&begin, &end);
        assert!((conditions.steal_share - 0.05).abs() < 1e-12);
        assert!(conditions.interrupts_apart);
        assert!((conditions.load_average_begin - 0.5).abs() < 1e-12);
    }
}
