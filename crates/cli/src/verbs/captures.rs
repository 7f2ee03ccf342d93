//! `throughline captures`: what a case holds.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};
use throughline_profile::{Capture, CaptureKind, escape};
use throughline_store::{CaptureSummary, Case};

use crate::args::CapturesArgs;
use crate::failure::Outcome;
use crate::output::{self, TOOL, Voice};

/// Names of targets that a row shows.
const NAMES_SHOWN: usize = 3;

pub fn run(args: &CapturesArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    let captures = Case::open_read_only(&args.case)?.captures()?;
    if voice.json {
        output::json(&json!({
            "schema": "captures/1",
            "tool": TOOL,
            "case": args.case.display().to_string(),
            "captures": captures.iter().map(document).collect::<Vec<_>>(),
        }))?;
    } else {
        output::text(&table(&captures))?;
    }
    let damaged = captures.iter().any(|summary| !summary.damage.is_empty());
    Ok(if damaged {
        Outcome::Damaged
    } else {
        Outcome::Done
    })
}

fn document(summary: &CaptureSummary) -> Value {
    let capture = &summary.capture;
    json!({
        "capture": capture.number,
        "kind": capture.kinds,
        "rate_hz": capture.rate_hz,
        "seconds": capture.duration.as_secs_f64(),
        "started_unix_ns": capture.started_unix_ns,
        "complete": capture.complete,
        "host": capture.host,
        "targets": capture.targets.iter().map(|target| json!({"pid": target.pid, "comm": target.comm})).collect::<Vec<_>>(),
        "warnings": capture.warnings,
        "ledger": summary.ledger,
        "damage": summary.damage.total(),
    })
}

fn table(captures: &[CaptureSummary]) -> String {
    let mut out = format!(
        "{:>7}  {:<14} {:>8} {:>6} {:>9} {:>6}  targets\n",
        "capture", "kind", "length", "rate", "kept", "lost"
    );
    for CaptureSummary {
        capture,
        ledger,
        damage,
    } in captures
    {
        let _ = write!(
            out,
            "{:>7}  {:<14} {:>6.1} s {:>3} Hz {:>9} {:>6}  {}",
            capture.number,
            kinds(capture),
            capture.duration.as_secs_f64(),
            capture.rate_hz,
            ledger.kept,
            ledger.lost_total().0,
            targets(capture)
        );
        if !capture.complete {
            out.push_str("  (incomplete: the recording was not finished)");
        }
        if !damage.is_empty() {
            let _ = write!(out, "  (damaged: {damage})");
        }
        out.push('\n');
    }
    if captures.is_empty() {
        out.push_str("no capture yet\n");
    }
    out
}

fn kinds(capture: &Capture) -> String {
    let names: Vec<&str> = capture
        .kinds
        .iter()
        .map(|kind| match kind {
            CaptureKind::OnCpu => "on-CPU",
            CaptureKind::OffCpu => "off-CPU",
        })
        .collect();
    names.join("+")
}

fn targets(capture: &Capture) -> String {
    let mut names: Vec<String> = capture
        .targets
        .iter()
        .take(NAMES_SHOWN)
        .map(|target| format!("{} {}", escape(&target.comm), target.pid))
        .collect();
    if capture.targets.len() > NAMES_SHOWN {
        names.push(format!("and {} more", capture.targets.len() - NAMES_SHOWN));
    }
    names.join(", ")
}
