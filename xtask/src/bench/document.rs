//! The report as a document.

use serde_json::{Value, json};

use super::Report;
use super::arms::{ARMS, Arm};
use super::blocks::{Blocks, Run, Totals};
use super::footprint::Footprint;

pub fn document(report: &Report) -> Value {
    let (blocks, conditions) = (&report.blocks, &report.conditions);
    json!({
        "schema": "bench-record/1",
        "lab": "global-rules",
        "blocks": blocks.blocks.len(),
        "blocks_given_up": blocks.failed,
        "slice_seconds": blocks.slice.as_secs_f64(),
        "seed": blocks.seed,
        "elapsed_seconds": blocks.elapsed.as_secs_f64(),
        "contended": blocks.is_contended(),
        "machine": {
            "cpu": conditions.cpu,
            "kernel": conditions.kernel,
            "load_average_begin": conditions.load_average_begin,
            "load_average_end": conditions.load_average_end,
            "steal_share": conditions.steal_share,
            "interrupts_accounted_apart": conditions.interrupts_apart,
        },
        "all_slices": totals(&blocks.all()),
        "off_slices": totals(&blocks.offs()),
        "arms": ARMS.map(|arm| of_arm(blocks, arm)),
        "recordings": report.footprints.iter().map(recording).collect::<Vec<_>>(),
        "targets": report.targets.iter().map(|target| json!({
            "what": target.what,
            "limit": target.limit,
            "reading": target.reading,
            "outcome": target.outcome.label(),
        })).collect::<Vec<_>>(),
    })
}

fn totals(totals: &Totals) -> Value {
    json!({
        "slices": totals.slices,
        "cpu_us_per_request": totals.cpu_us_per_request(),
        "requests_per_s": totals.requests_per_second(),
        "occupancy": totals.occupancy(),
        "run_delay_share": totals.run_delay_share(),
        "generator_share_of_core": totals.generator_share(),
    })
}

/// Ratios are changes in percent; `log_ratios` are one a block, in their order, for whoever wants to compute otherwise.
fn of_arm(blocks: &Blocks, arm: Arm) -> Value {
    let change = |figure: fn(&Run) -> f64| match blocks.estimate(arm, figure) {
        Ok(estimate) => json!({
            "mean_percent": estimate.mean_percent(),
            "low_percent": estimate.low_percent(),
            "high_percent": estimate.high_percent(),
            "log_deviation": estimate.deviation,
            "log_ratios": blocks.runs(arm).map(figure).collect::<Vec<_>>(),
        }),
        Err(error) => json!({"mean_percent": null, "mean_percent_reason": error.to_string()}),
    };
    let mut document = json!({
        "arm": arm.label(),
        "cpu_per_request": change(|run| run.log_cpu),
        "throughput": change(|run| run.log_throughput),
        "samples_per_cpu_second": blocks.samples_per_second(arm),
        "slices": totals(&blocks.totals(arm)),
    });
    if document["samples_per_cpu_second"].is_null() {
        document["samples_per_cpu_second_reason"] = json!("this arm has no recorder");
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
        "record": footprint.document,
    })
}
