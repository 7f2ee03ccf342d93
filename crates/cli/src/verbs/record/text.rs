//! The summary as text; no colour, and every foreign name harmless.

use std::fmt::Write as _;

use throughline_profile::{CaptureKind, Ledger, LuaContext, RequestCount, Target, escape};
use throughline_units::Nanos;

use super::counts::KindCounts;
use super::keeper::EndedBy;
use super::summary::Summary;
use crate::output::Voice;

/// Targets that are listed; the rest are counted.
const TARGETS_SHOWN: usize = 12;

/// The whole summary; with `-q` only where the capture is.
pub fn text(summary: &Summary, voice: Voice) -> String {
    let capture = &summary.capture;
    let path = summary.case.display().to_string();
    let mut out = format!(
        "capture {} in {}: {:.1} s, {}; {}\n",
        capture.number,
        escape(&path),
        capture.duration.as_secs_f64(),
        kinds(summary),
        ended(summary)
    );
    if voice.quiet {
        return out;
    }
    targets(&mut out, &capture.targets);
    for (kind, name, ledger, counts) in [
        (
            CaptureKind::OnCpu,
            "on-CPU",
            &capture.ledger_on_cpu,
            &summary.counts.on_cpu,
        ),
        (
            CaptureKind::OffCpu,
            "off-CPU",
            &capture.ledger_off_cpu,
            &summary.counts.off_cpu,
        ),
    ] {
        if capture.kinds.contains(&kind) {
            samples(&mut out, name, ledger, counts);
            if kind == CaptureKind::OnCpu {
                expected(&mut out, summary);
            }
        }
    }
    if !summary.ledger.flagged.is_empty() {
        let flags: Vec<String> = summary
            .ledger
            .flagged
            .iter()
            .map(|(flag, count)| format!("{} {count}", escape(flag)))
            .collect();
        let _ = writeln!(out, "flagged  {}", flags.join(", "));
    }
    requests(&mut out, &capture.requests);
    cost(&mut out, summary);
    stacks(&mut out, summary);
    for warning in &capture.warnings {
        let _ = writeln!(out, "note     {}", escape(warning));
    }
    next(&mut out, summary, &path);
    out
}

fn requests(out: &mut String, requests: &RequestCount) {
    let _ = match requests {
        RequestCount::Counted { count, source } => {
            writeln!(out, "requests {count}, counted by {}", escape(source))
        }
        RequestCount::NotCounted { reason } => {
            writeln!(out, "requests not counted: {}", escape(reason))
        }
    };
}

fn kinds(summary: &Summary) -> String {
    let capture = &summary.capture;
    let mut texts = Vec::new();
    if capture.kinds.contains(&CaptureKind::OnCpu) {
        texts.push(format!("on-CPU at {} Hz", capture.rate_hz));
    }
    if capture.kinds.contains(&CaptureKind::OffCpu) {
        texts.push(format!(
            "off-CPU, waits of {} to {}",
            Nanos(capture.min_block_ns),
            Nanos(capture.max_block_ns)
        ));
    }
    texts.join(", ")
}

fn ended(summary: &Summary) -> String {
    let reason = match summary.ended_by {
        EndedBy::Time => "its time is over",
        EndedBy::Signal => "ended early by a signal, all kept",
        EndedBy::TargetsEnded => "all its targets have ended",
        EndedBy::CommandEnded => "the command has ended",
    };
    match summary.program_end {
        None => reason.to_owned(),
        Some(end) => match (end.exit_code, end.signal) {
            (Some(code), _) => format!("{reason}; exit status of the command {code}"),
            (None, Some(signal)) => format!("{reason}; the command was ended by signal {signal}"),
            (None, None) => format!("{reason}; the command's exit status is not known"),
        },
    }
}

fn targets(out: &mut String, targets: &[Target]) {
    for target in targets.iter().take(TARGETS_SHOWN) {
        let cpu = target.cpu_ns.map_or_else(
            || "CPU time not known".to_owned(),
            |ns| format!("CPU {}", Nanos(ns)),
        );
        let _ = writeln!(
            out,
            "target   {} {}, {cpu}, {}{}",
            target.pid,
            escape(&target.comm),
            lua(target),
            if target.ended.is_some() {
                ", ended"
            } else {
                ""
            }
        );
    }
    if targets.len() > TARGETS_SHOWN {
        let _ = writeln!(out, "target   and {} more", targets.len() - TARGETS_SHOWN);
    }
}

fn lua(target: &Target) -> String {
    match (&target.lua_vms[..], &target.lua_unreadable) {
        ([], None) => "no Lua".to_owned(),
        ([], Some(reason)) => format!("Lua not readable: {}", escape(reason)),
        ([vm, rest @ ..], _) => {
            let more = if rest.is_empty() {
                String::new()
            } else {
                format!(" and {} more VMs", rest.len())
            };
            let version = if vm.version.is_empty() {
                "LuaJIT"
            } else {
                vm.version.as_str()
            };
            format!("Lua: {}{more}", escape(version))
        }
    }
}

fn samples(out: &mut String, name: &str, ledger: &Ledger, counts: &KindCounts) {
    let _ = writeln!(out, "{name:<8} {ledger}");
    let with = counts.lua.get(&LuaContext::With).copied().unwrap_or(0);
    let without: Vec<String> = counts
        .lua
        .iter()
        .filter(|(context, _)| **context != LuaContext::With)
        .map(|(context, count)| format!("{} {count}", context.as_str()))
        .collect();
    if with > 0
        || counts
            .lua
            .keys()
            .any(|&context| context != LuaContext::NoVm)
    {
        let _ = writeln!(
            out,
            "         Lua context: {with} of {} with; without: {}",
            counts.samples,
            without.join(", ")
        );
    }
}

fn expected(out: &mut String, summary: &Summary) {
    if let (Some(expected), Some(cpu_ns)) = (summary.expected_on_cpu, summary.targets_cpu_ns) {
        let _ = writeln!(
            out,
            "         expected about {expected:.0}: {} Hz x {:.2} s of CPU time",
            summary.capture.rate_hz,
            cpu_ns as f64 / 1e9
        );
    }
}

fn cost(out: &mut String, summary: &Summary) {
    let _ = write!(
        out,
        "cost     recorder {:.1} % of a core",
        summary.recorder_cpu_share() * 100.0
    );
    if let Some(ns) = summary.capture.bpf_ns_per_sample_mean {
        let _ = write!(out, ", BPF {:.1} us per on-CPU sample", ns / 1e3);
    }
    if let Some(share) = summary
        .sampling_cost_share()
        .filter(|_| summary.beyond_safe)
    {
        let _ = write!(
            out,
            ": at {} Hz {:.2} % of a core for each thread that always runs",
            summary.capture.rate_hz,
            share * 100.0
        );
    }
    out.push('\n');
}

fn stacks(out: &mut String, summary: &Summary) {
    let stacks = &summary.stacks;
    let Some(problem) = &stacks.problem else {
        return;
    };
    let lead = if stacks.none_is_whole() {
        "NO STACK IS WHOLE: these samples show where code ran, not who called it, and a graph of them would mislead".to_owned()
    } else {
        "many stacks do not reach the process entry".to_owned()
    };
    let _ = writeln!(
        out,
        "stacks   {lead}: {} of {} ({:.1} %): {}",
        stacks.incomplete,
        stacks.samples,
        stacks.incomplete_share() * 100.0,
        escape(problem)
    );
}

fn next(out: &mut String, summary: &Summary, path: &str) {
    let kept = summary.ledger.kept;
    if kept == 0 {
        let _ = writeln!(
            out,
            "next     no sample: the targets neither ran nor waited within the limits; is there load? \
             (`throughline check` says what they do)"
        );
        return;
    }
    let off = if summary.counts.on_cpu.samples == 0 {
        " --off-cpu"
    } else {
        ""
    };
    let _ = writeln!(out, "next     throughline rank {}{off}", quoted(path));
}

/// A path as one word of a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", escape(path).replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn the_next_command_can_be_pasted_whatever_the_file_is_called() {
        assert_eq!(quoted("a/case-1.tl"), "a/case-1.tl");
        assert_eq!(quoted("my case; rm.tl"), "'my case; rm.tl'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
