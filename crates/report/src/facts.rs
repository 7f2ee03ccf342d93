//! What must be known beside the graph: the capture, its ledger, its warnings.

use std::collections::BTreeMap;

use throughline_profile::{CaptureKind, Profile, Target};

use crate::text::{duration, grouped, weight};
use crate::view::{View, Weighed};

/// The page's title when the caller gives none: the targets by name.
pub(crate) fn title(profile: &Profile) -> String {
    let mut names: Vec<&str> = Vec::new();
    for target in &profile.capture.targets {
        if !names.contains(&target.comm.as_str()) {
            names.push(&target.comm);
        }
    }
    if names.is_empty() {
        "Profile".to_owned()
    } else {
        names.join(", ")
    }
}

/// Facts of the capture, name and text, without those that are not known.
pub(crate) fn capture(profile: &Profile) -> Vec<(&'static str, String)> {
    let capture = &profile.capture;
    let mut facts = Vec::new();
    for (at, target) in capture.targets.iter().enumerate() {
        facts.push((if at == 0 { "Targets" } else { "" }, target_text(target)));
    }
    if capture.duration.0 > 0 {
        facts.push(("Duration", duration(capture.duration.0)));
    }
    if capture.rate_hz > 0 {
        facts.push((
            "Rate",
            format!("{} Hz of each thread's CPU time", capture.rate_hz),
        ));
    }
    if capture.kinds.contains(&CaptureKind::OffCpu) && capture.max_block_ns > 0 {
        let (min, max) = (
            duration(capture.min_block_ns),
            duration(capture.max_block_ns),
        );
        facts.push(("Off-CPU kept", format!("stretches of {min} to {max}")));
    }
    let host = [capture.host.as_str(), capture.kernel.as_str()];
    let host: Vec<_> = host.into_iter().filter(|text| !text.is_empty()).collect();
    if !host.is_empty() {
        facts.push(("Host", host.join(", kernel ")));
    }
    if let Some(ns) = capture.bpf_ns_per_sample_mean {
        facts.push((
            "Cost",
            format!("{:.1} us of BPF per on-CPU sample", ns / 1000.0),
        ));
    }
    if !capture.tool.is_empty() {
        facts.push(("Recorded by", format!("throughline {}", capture.tool)));
    }
    facts
}

fn target_text(target: &Target) -> String {
    let mut text = format!("{} (pid {})", target.comm, target.pid);
    if !target.exe.is_empty() {
        text.push_str(&format!(", {}", target.exe));
    }
    for vm in &target.lua_vms {
        let width = if vm.gc64 { ", GC64" } else { "" };
        text.push_str(&format!(", Lua VM {}{width}", vm.version));
    }
    if let Some(cpu) = target.cpu_ns {
        text.push_str(&format!(", {} of CPU time", duration(cpu)));
    }
    text
}

/// What the recorder warned of, and what this profile shows by itself.
///
/// `samples`: how many samples each view holds.
pub(crate) fn warnings(profile: &Profile, samples: impl Iterator<Item = u64>) -> Vec<String> {
    let mut warnings = profile.capture.warnings.clone();
    for target in &profile.capture.targets {
        if let Some(why) = &target.lua_unreadable {
            warnings.push(format!(
                "Lua in {} (pid {}): {why}",
                target.comm, target.pid
            ));
        }
    }
    if !profile.capture.complete {
        warnings.push("the recording was cut short: its last second may be missing".to_owned());
    }
    if !profile.ledger.balances() {
        warnings.push("the ledger does not add up: taken is not kept plus lost".to_owned());
    }
    let held: u64 = samples.sum();
    let kept = profile.ledger.kept;
    if held != kept {
        let (held, kept) = (grouped(held), grouped(kept));
        warnings.push(format!(
            "the ledger counts {kept} samples kept, but {held} are here"
        ));
    }
    warnings
}

/// The ledger and the Lua context as sentences.
pub(crate) fn notes(profile: &Profile, view: View, weighed: &Weighed) -> Vec<String> {
    let ledger = view.ledger(profile);
    let mut notes = vec![format!(
        "{}: {} taken = {} kept + {} lost{}",
        if view.ledger_is_of_all(profile) {
            "Ledger, on- and off-CPU together"
        } else {
            "Ledger"
        },
        grouped(ledger.taken),
        grouped(ledger.kept),
        grouped(ledger.lost_total().0),
        in_brackets(&ledger.lost),
    )];
    if !ledger.flagged.is_empty() {
        notes.push(format!(
            "Flagged among the kept: {}",
            listed(&ledger.flagged)
        ));
    }
    if !weighed.without_lua.is_empty() {
        let reasons: Vec<_> = weighed
            .without_lua
            .iter()
            .map(|(reason, amount)| format!("{reason} {}", weight(amount.weight, view.is_time())))
            .collect();
        notes.push(format!("Without Lua context: {}", reasons.join(", ")));
    }
    notes
}

fn in_brackets(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        String::new()
    } else {
        format!(" ({})", listed(counts))
    }
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let rows: Vec<_> = counts
        .iter()
        .map(|(reason, &count)| format!("{reason} {}", grouped(count)))
        .collect();
    rows.join(", ")
}
