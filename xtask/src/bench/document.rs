//! The report as a document.

use serde_json::{Value, json};

use super::Report;
use super::arms::{ARMS, Arm};
use super::footprint::Footprint;
use super::windows::Windows;

pub fn document(report: &Report) -> Value {
    let (windows, conditions) = (&report.windows, &report.conditions);
    let distrust = windows.distrust();
    json!({
        "schema": "bench-record/2",
        "lab": "global-rules",
        "blocks": windows.blocks(),
        "incarnations": windows.incarnations(),
        "window_seconds": windows.window.as_secs_f64(),
        "seed": windows.seed,
        "elapsed_seconds": windows.elapsed.as_secs_f64(),
        "contended": distrust.is_some(),
        "contended_reason": distrust,
        "us_per_request": windows.us_per_request(),
        "writes_per_request": windows.writes_per_request(),
        "occupancy": windows.occupancy(),
        "run_delay_share": windows.run_delay_share(),
        "machine": {
            "cpu": conditions.cpu,
            "kernel": conditions.kernel,
            "load_average_begin": conditions.load_average_begin,
            "load_average_end": conditions.load_average_end,
            "steal_share": conditions.steal_share,
            "interrupts_accounted_apart": conditions.interrupts_apart,
        },
        "arms": ARMS.map(|arm| of_arm(windows, arm)),
        "recordings": report.footprints.iter().map(recording).collect::<Vec<_>>(),
        "targets": report.targets.iter().map(|target| json!({
            "what": target.what,
            "limit": target.limit,
            "reading": target.reading,
            "outcome": target.outcome.label(),
        })).collect::<Vec<_>>(),
    })
}

/// Ratios are changes in percent; `log_ratios` are one a block, in their order, for whoever wants to compute otherwise.
fn of_arm(windows: &Windows, arm: Arm) -> Value {
    let change = match windows.estimate(arm) {
        Ok(estimate) => json!({
            "mean_percent": estimate.mean_percent(),
            "low_percent": estimate.low_percent(),
            "high_percent": estimate.high_percent(),
            "log_deviation": estimate.deviation,
            "log_ratios": windows.log_costs(arm),
        }),
        Err(error) => json!({"mean_percent": null, "mean_percent_reason": error.to_string()}),
    };
    let (count, seconds) = windows.time_of(arm);
    let mut document = json!({
        "arm": arm.label(),
        "time_per_request": change,
        "windows": count,
        "window_seconds": seconds,
        "samples": windows.samples(arm),
    });
    if document["samples"].is_null() {
        document["samples_reason"] = json!("this arm has no recorder");
    }
    document
}

fn recording(footprint: &Footprint) -> Value {
    json!({
        "arm": footprint.arm.label(),
        "rate_hz": footprint.rate_hz,
        "seconds": footprint.seconds,
        "recorder_cpu_seconds": footprint.cpu_seconds,
        "recorder_start_up_cpu_seconds": footprint.start_up_cpu_seconds,
        "recorder_cpu_share": footprint.cpu_share(),
        "recorder_cpu_share_without_start_up": footprint.cpu_share_without_start_up(),
        "memory_peak_bytes": footprint.memory.peak,
        "memory_anonymous_bytes": footprint.memory.anonymous,
        "memory_file_bytes": footprint.memory.file,
        "memory_shared_bytes": footprint.memory.shared,
        "bpf_map_bytes": footprint.bpf_map_bytes,
        "off_cpu_program_share_of_core": footprint.tracing_share(),
        "record": footprint.document,
    })
}
