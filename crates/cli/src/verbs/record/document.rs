//! The summary as the document of `record --json`. A `null` has its reason beside it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_profile::{LuaContext, RequestCount, Target};

use super::counts::KindCounts;
use super::keeper::EndedBy;
use super::launch::ProgramEnd;
use super::summary::Summary;
use crate::output::TOOL;

pub fn document(summary: &Summary) -> Value {
    let capture = &summary.capture;
    let mut document = json!({
        "schema": "record/1",
        "tool": TOOL,
        "case": summary.case.display().to_string(),
        "capture": capture.number,
        "kind": capture.kinds,
        "rate_hz": capture.rate_hz,
        "seconds": capture.duration.as_secs_f64(),
        "min_block_ns": capture.min_block_ns,
        "max_block_ns": capture.max_block_ns,
        "ended_by": match summary.ended_by {
            EndedBy::Time => "time",
            EndedBy::Signal => "signal",
            EndedBy::TargetsEnded => "targets_ended",
            EndedBy::CommandEnded => "command_ended",
        },
        "targets": capture.targets.iter().map(target).collect::<Vec<_>>(),
        "lua_context": lua_context([&summary.counts.on_cpu, &summary.counts.off_cpu]),
        "lua_context_on_cpu": lua_context([&summary.counts.on_cpu]),
        "lua_context_off_cpu": lua_context([&summary.counts.off_cpu]),
        "stacks": {
            "kind": summary.stacks.kind,
            "samples": summary.stacks.samples,
            "incomplete": summary.stacks.incomplete,
            "incomplete_share": summary.stacks.incomplete_share(),
        },
        "recorder": {
            "cpu_ns": capture.recorder_cpu.0,
            "cpu_share_of_core": summary.recorder_cpu_share(),
        },
        "ledger": summary.ledger,
        "ledger_on_cpu": capture.ledger_on_cpu,
        "ledger_off_cpu": capture.ledger_off_cpu,
        "warnings": capture.warnings,
    });
    match &capture.requests {
        RequestCount::Counted { count, source } => {
            document["requests"] = json!({"count": count, "source": source});
        }
        RequestCount::NotCounted { reason } => {
            document["requests"] = Value::Null;
            document["requests_reason"] = json!(reason);
        }
    }
    let mut bpf = json!({});
    let no_sample = "no on-CPU sample was taken";
    put(
        &mut bpf,
        "ns_per_sample_mean",
        capture.bpf_ns_per_sample_mean,
        no_sample,
    );
    put(
        &mut bpf,
        "share_of_core_at_rate",
        summary.sampling_cost_share(),
        no_sample,
    );
    document["bpf"] = bpf;
    put(
        &mut document,
        "expected_on_cpu_samples",
        summary.expected_on_cpu,
        "no on-CPU samples were asked for, or the targets' CPU time could not be read",
    );
    put(
        &mut document["stacks"],
        "problem",
        summary.stacks.problem.clone(),
        "nearly all stacks are whole",
    );
    put(
        &mut document,
        "command",
        summary.program_end.map(command),
        "no command was started",
    );
    document
}

fn command(end: ProgramEnd) -> Value {
    let mut value = json!({});
    put(
        &mut value,
        "exit_code",
        end.exit_code,
        "it was ended by a signal",
    );
    put(&mut value, "signal", end.signal, "it ended by itself");
    value
}

fn target(target: &Target) -> Value {
    let mut value = json!({
        "pid": target.pid,
        "comm": target.comm,
        "exe": target.exe,
        "joined_ns": target.joined.0,
        "lua_vm": lua_vm(target),
        "lua_vms": target.lua_vms.len(),
    });
    put(&mut value, "cpu_ns", target.cpu_ns, "it could not be read");
    put(
        &mut value,
        "ended_ns",
        target.ended.map(|at| at.0),
        "it was running when the recording ended",
    );
    value
}

fn lua_vm(target: &Target) -> Value {
    let Some(vm) = target.lua_vms.first() else {
        return json!({"found": false, "reason": target.lua_unreadable.as_deref().unwrap_or("it maps no Lua library")});
    };
    let mut value = json!({"found": true, "gc64": vm.gc64, "layout": vm.layout});
    put(
        &mut value,
        "version",
        Some(vm.version.clone()).filter(|version| !version.is_empty()),
        "the library does not tell it",
    );
    value
}

fn lua_context<const N: usize>(kinds: [&KindCounts; N]) -> Value {
    let mut without: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut samples, mut with) = (0, 0);
    for (&context, &count) in kinds.iter().flat_map(|counts| &counts.lua) {
        samples += count;
        if context == LuaContext::With {
            with += count;
        } else {
            *without.entry(context.as_str()).or_default() += count;
        }
    }
    json!({"samples": samples, "with": with, "without": without})
}

/// A value, or `null` with the reason beside it.
fn put(document: &mut Value, key: &str, value: Option<impl Into<Value>>, reason: &str) {
    match value {
        Some(value) => document[key] = value.into(),
        None => {
            document[key] = Value::Null;
            document[format!("{key}_reason")] = json!(reason);
        }
    }
}
