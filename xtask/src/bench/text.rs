//! The report for people.

use std::fmt::Write as _;

use serde_json::Value;

use super::Report;
use super::arms::{ARMS, Arm, on_cpu};
use super::footprint::Footprint;
use super::statistics::Estimate;
use super::windows::Windows;

/// Reasons for which a sample is without Lua frames because Lua was not running.
const OUTSIDE_LUA: [&str; 2] = ["no_vm", "native_only_thread"];

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    conditions(&mut text, report);
    arms(&mut text, &report.windows);
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
    let (conditions, windows) = (&report.conditions, &report.windows);
    let _ = writeln!(
        text,
        "lab global-rules, {} blocks in {} incarnations of the gateway, windows of {:.0} ms, seed {}, {:.0} s in all\n\
         {}, Linux {}; load average {:.1} at the begin, {:.1} at the end; steal {:.2} %\n\
         worker {:.1} us per request without a recorder ({:.3} writes each); occupancy {:.3}, run delay {:.2} % of wall",
        windows.blocks(),
        windows.incarnations(),
        1e3 * windows.window.as_secs_f64(),
        windows.seed,
        windows.elapsed.as_secs_f64(),
        conditions.cpu,
        conditions.kernel,
        conditions.load_average_begin,
        conditions.load_average_end,
        100.0 * conditions.steal_share,
        windows.us_per_request(),
        windows.writes_per_request(),
        windows.occupancy(),
        100.0 * windows.run_delay_share(),
    );
    if let Some(reason) = windows.distrust() {
        let _ = writeln!(text, "CONTENDED: do not trust. {reason}");
    }
}

fn arms(text: &mut String, windows: &Windows) {
    let _ = writeln!(
        text,
        "\n{:<34} {:>26} {:>6} {:>9} {:>10} {:>9}",
        "against the windows around it, 95 %",
        "time per request, %",
        "SD",
        "windows",
        "seconds",
        "samples"
    );
    for arm in ARMS {
        let estimate = windows.estimate(arm);
        let (count, seconds) = windows.time_of(arm);
        let _ = writeln!(
            text,
            "{:<34} {:>26} {:>6} {:>9} {:>10.1} {:>9}",
            arm.label(),
            estimate.as_ref().map_or_else(ToString::to_string, interval),
            estimate.as_ref().map_or_else(
                |_| "-".to_owned(),
                |e| format!("{:.2}", 100.0 * e.deviation)
            ),
            count,
            seconds,
            windows
                .samples(arm)
                .map_or_else(|| "-".to_owned(), |samples| samples.to_string()),
        );
    }
    for arm in [
        on_cpu(499),
        Arm::PerfDwarf { rate_hz: 499 },
        Arm::PerfFramePointers { rate_hz: 499 },
    ] {
        if let Ok(stacks) = windows.against(arm, Arm::Interrupts { rate_hz: 499 }) {
            let _ = writeln!(
                text,
                "its stacks alone, over a clock without stacks: {}, {} %",
                arm.label(),
                interval(&stacks)
            );
        }
    }
    if let Ok(floor) = windows.estimate(Arm::Off) {
        let verdict = if floor.covers_none() {
            "covers 0, as it must"
        } else {
            "does NOT cover 0: something favours one place of a cycle"
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
         \x20 recorder CPU {:.2} s, of which start-up {:.2} s; memory peak {:.0} MB (at the end: anonymous {:.0}, file {:.0}, shared {:.0}), BPF maps {:.0} MB in the kernel; off-CPU programs {:.3} % of a core\n\
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
        100.0 * footprint.tracing_share(),
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
