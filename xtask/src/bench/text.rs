//! The report for people.

use std::fmt::Write as _;

use serde_json::Value;

use super::Report;
use super::arms::{ARMS, Arm};
use super::blocks::{Blocks, RUN_DELAY_MAX};
use super::footprint::Footprint;
use super::statistics::Estimate;

/// A generator busier than this may be what limits the worker (experiment guard).
const GENERATOR_SHARE_MAX: f64 = 0.7;

/// Reasons for which a sample is without Lua frames because Lua was not running.
const OUTSIDE_LUA: [&str; 2] = ["no_vm", "native_only_thread"];

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    conditions(&mut text, report);
    arms(&mut text, &report.blocks);
    for footprint in &report.footprints {
        recorder(&mut text, footprint);
    }
    let _ = writeln!(text, "\ntargets");
    for target in &report.targets {
        let _ = writeln!(
            text,
            "  {:<13} {} {}: {}",
            target.outcome.label(),
            target.what,
            target.limit,
            target.reading
        );
    }
    text
}

fn conditions(text: &mut String, report: &Report) {
    let (conditions, blocks) = (&report.conditions, &report.blocks);
    let (all, offs) = (blocks.all(), blocks.offs());
    let _ = writeln!(
        text,
        "lab global-rules, {} blocks of one gateway incarnation each, slices of {:.1} s, seed {}, {:.0} s in all\n\
         {}, Linux {}; load average {:.1} at the begin, {:.1} at the end; steal {:.2} %\n\
         worker {:.1} us of CPU per request without a recorder, {:.0} requests/s; occupancy {:.3}, run delay {:.2} % of wall; generator {:.2} cores",
        blocks.blocks.len(),
        blocks.slice.as_secs_f64(),
        blocks.seed,
        blocks.elapsed.as_secs_f64(),
        conditions.cpu,
        conditions.kernel,
        conditions.load_average_begin,
        conditions.load_average_end,
        100.0 * conditions.steal_share,
        offs.cpu_us_per_request(),
        offs.requests_per_second(),
        all.occupancy(),
        100.0 * all.run_delay_share(),
        all.generator_share(),
    );
    for reason in &blocks.failed {
        let _ = writeln!(text, "a block was given up: {reason}");
    }
    if blocks.is_contended() {
        let _ = writeln!(
            text,
            "CONTENDED: do not trust. The worker waited for its core {:.1} % of the time (at most {:.0} %)",
            100.0 * all.run_delay_share(),
            100.0 * RUN_DELAY_MAX
        );
    }
    if all.generator_share() > GENERATOR_SHARE_MAX {
        let _ = writeln!(
            text,
            "the generator is busy {:.2} of its core (at most {GENERATOR_SHARE_MAX}): requests/s are not the worker's capacity",
            all.generator_share()
        );
    }
    if conditions.interrupts_apart {
        let _ = writeln!(
            text,
            "this kernel accounts interrupts apart: sampling is not in the worker's CPU time, look at requests/s"
        );
    }
}

fn arms(text: &mut String, blocks: &Blocks) {
    let _ = writeln!(
        text,
        "\n{:<38} {:>24} {:>6} {:>24} {:>10} {:>9}",
        "against the slices around it, 95 %",
        "CPU per request, %",
        "SD",
        "requests/s, %",
        "samples/s",
        "run delay"
    );
    for arm in ARMS {
        let totals = blocks.totals(arm);
        let cpu = blocks.estimate(arm, |run| run.log_cpu);
        let throughput = blocks.estimate(arm, |run| run.log_throughput);
        let shown = |estimate: &anyhow::Result<Estimate>| match estimate {
            Ok(e) => interval(e),
            Err(_) => "too few blocks".to_owned(),
        };
        let _ = writeln!(
            text,
            "{:<38} {:>24} {:>6} {:>24} {:>10} {:>7.2} %",
            arm.label(),
            shown(&cpu),
            cpu.as_ref().map_or_else(
                |_| "-".to_owned(),
                |e| format!("{:.2}", 100.0 * e.deviation)
            ),
            shown(&throughput),
            blocks
                .samples_per_second(arm)
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
            100.0 * totals.run_delay_share(),
        );
    }
    if let Ok(floor) = blocks.estimate(Arm::Off, |run| run.log_cpu) {
        let verdict = if floor.covers_none() {
            "covers 0, as it must"
        } else {
            "does NOT cover 0: something favours one place of a slice"
        };
        let _ = writeln!(
            text,
            "floor: A/A {} ({verdict}); effects below {:.2} % cannot be seen in this run",
            interval(&floor),
            floor.half_width_percent()
        );
    }
}

fn interval(estimate: &Estimate) -> String {
    format!(
        "{:+.2} [{:+.2}, {:+.2}]",
        estimate.mean_percent(),
        estimate.low_percent(),
        estimate.high_percent()
    )
}

fn recorder(text: &mut String, footprint: &Footprint) {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let number = |path: &[&str]| {
        footprint
            .figure(path)
            .map_or_else(|| "not known".to_owned(), |value| format!("{value:.0}"))
    };
    let memory = footprint.memory;
    let _ = writeln!(
        text,
        "\n{}, {:.1} s under load\n\
         \x20 recorder CPU {:.2} s, of which start-up {:.2} s; memory peak {:.0} MB (at the end: anonymous {:.0}, file {:.0}, shared {:.0}), BPF maps {:.0} MB in the kernel\n\
         \x20 on-CPU: taken {}, kept {}, lost {}; off-CPU: taken {}, kept {}, lost {}",
        footprint.arm.label(),
        footprint.seconds,
        footprint.cpu_seconds,
        footprint.start_up_cpu_seconds,
        mb(memory.peak),
        mb(memory.anonymous),
        mb(memory.file),
        mb(memory.shared),
        mb(footprint.bpf_map_bytes),
        number(&["ledger_on_cpu", "taken"]),
        number(&["ledger_on_cpu", "kept"]),
        losses(&footprint.document["ledger_on_cpu"]["lost"]),
        number(&["ledger_off_cpu", "taken"]),
        number(&["ledger_off_cpu", "kept"]),
        losses(&footprint.document["ledger_off_cpu"]["lost"]),
    );
    if let (Some(samples), Some(share)) = (
        footprint.figure(&["stacks", "samples"]),
        footprint.figure(&["stacks", "incomplete_share"]),
    ) {
        let _ = writeln!(
            text,
            "  native stacks complete to the process entry: {:.2} % of {samples:.0}",
            100.0 * (1.0 - share)
        );
    }
    if let (Some(samples), Some(with)) = (
        footprint.figure(&["lua_context_on_cpu", "samples"]),
        footprint.figure(&["lua_context_on_cpu", "with"]),
    ) {
        let without = |reason| footprint.figure(&["lua_context_on_cpu", "without", reason]);
        let outside = OUTSIDE_LUA.into_iter().filter_map(without).sum::<f64>();
        let inside = samples - outside;
        let _ = writeln!(
            text,
            "  Lua frames in {:.2} % of {samples:.0} on-CPU samples, in {:.2} % of the {inside:.0} taken inside Lua; without, by reason: {}",
            100.0 * with / samples.max(1.0),
            100.0 * with / inside.max(1.0),
            losses(&footprint.document["lua_context_on_cpu"]["without"])
        );
    }
}

/// Counts by reason, or `none`.
fn losses(counts: &Value) -> String {
    let texts: Vec<String> = counts
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}
