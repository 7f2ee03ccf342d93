//! The roll-up as text for a terminal or a log; no colour, no control characters.

use std::fmt::Write as _;

use throughline_evidence::Boundary;

use super::{Entry, PathReport};
use crate::per_request::us;
use crate::shown::{percent, shown};

/// The report as text that ends with a newline.
#[must_use]
pub fn render(report: &PathReport) -> String {
    let mut out = String::new();
    head(&mut out, report);
    cost(&mut out, report);
    entries(&mut out, report);
    crate::categories::table(
        &mut out,
        &report.cost_by_category,
        &report.uncategorised,
        report.inclusive_samples,
    );
    leaves(&mut out, report);
    crate::per_request::line(&mut out, &report.denominators.requests);
    let _ = writeln!(out, "Ledger: {}", report.ledger);
    out.push_str("\nWhat this does not prove\n");
    for Boundary(text) in &report.boundaries {
        let _ = writeln!(out, "  - {text}");
    }
    out
}

fn head(out: &mut String, report: &PathReport) {
    let cut = if report.complete {
        ""
    } else {
        ", INCOMPLETE (the recording was not finished)"
    };
    let _ = writeln!(
        out,
        "{} in capture {}, {:.1} s at {} Hz{cut}: {} function(s)",
        shown(&report.function),
        report.capture,
        report.seconds,
        report.rate_hz,
        report.matches.len() + report.omitted_matches
    );
    for row in &report.matches {
        let place = row.source.as_deref().or(row.module.as_deref());
        let _ = writeln!(
            out,
            "  {}  {}  {} samples in {} stacks",
            shown(&row.function),
            shown(place.unwrap_or(row.kind.as_str())),
            row.samples,
            row.stacks
        );
    }
    more(out, report.omitted_matches);
}

fn cost(out: &mut String, report: &PathReport) {
    let of = &report.denominators;
    let (name, whole) = match report.share_of {
        "lua_context" => ("samples with Lua context", of.lua_context),
        _ => ("samples", of.samples),
    };
    let _ = writeln!(out, "\nCost; shares of {whole} {name}");
    if let Some(part) = report.self_in_lua {
        let _ = writeln!(
            out,
            "  {:>7} {:>9}  its own bytecode",
            percent(part.share),
            part.samples
        );
    }
    let _ = writeln!(
        out,
        "  {:>7} {:>9}  self{}",
        percent(report.self_share),
        report.self_samples,
        if report.self_in_lua.is_some() {
            ", with the C code that it called"
        } else {
            ""
        }
    );
    let _ = writeln!(
        out,
        "  {:>7} {:>9}  inclusive{}, {} a request",
        percent(report.inclusive_share),
        report.inclusive_samples,
        larger(report),
        us(report.us_per_request)
    );
    match (report.calls_per_request, report.calls_per_request_reason) {
        (Some(calls), _) => {
            let _ = writeln!(out, "  {calls:.2} calls a request");
        }
        (None, reason) => {
            let _ = writeln!(
                out,
                "  calls a request: not known ({})",
                reason.unwrap_or("no reason")
            );
        }
    }
}

/// How much of the cost a look at self alone leaves out.
fn larger(report: &PathReport) -> String {
    let mut text = String::new();
    if let Some(times) = report.inclusive_to_self {
        let _ = write!(text, ", {times:.1} times its self");
    }
    if let Some(times) = report.inclusive_to_self_in_lua {
        let _ = write!(text, ", {times:.1} times its own bytecode");
    }
    text
}

fn entries(out: &mut String, report: &PathReport) {
    if report.entered_from.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\nEntered from {} places; shares of its {} inclusive samples",
        report.entered_from.len() + report.omitted_entries,
        report.inclusive_samples
    );
    for row in &report.entered_from {
        let _ = writeln!(
            out,
            "  {:>7} {:>9}  {}",
            percent(row.share),
            row.samples,
            entry(row)
        );
    }
    more(out, report.omitted_entries);
    if report.entered_without_lua > 0 {
        let _ = writeln!(
            out,
            "  ({} samples came without Lua)",
            report.entered_without_lua
        );
    }
}

/// `access_by_lua(nginx.conf:52) > http_access_phase @init.lua:66  (ngx_http_lua_access_handler < ngx_http_core_run_phases)`.
fn entry(row: &Entry) -> String {
    let mut text = shown(&row.function);
    if let Some(at) = &row.at {
        let _ = write!(text, " > {}", shown(at));
    }
    if let Some(handler) = &row.handler {
        let _ = write!(text, "  ({}", shown(handler));
        if let Some(caller) = &row.caller {
            let _ = write!(text, " < {}", shown(caller));
        }
        text.push(')');
    }
    text
}

fn leaves(out: &mut String, report: &PathReport) {
    let _ = writeln!(
        out,
        "\nInnermost machine code; shares of its {} inclusive samples",
        report.inclusive_samples
    );
    for row in &report.cost_by_native_leaf {
        let module = row.module.as_deref().unwrap_or(row.kind.as_str());
        let _ = writeln!(
            out,
            "  {:>7} {:>9}  {}  [{}]",
            percent(row.share),
            row.samples,
            shown(&row.function),
            shown(module)
        );
    }
    more(out, report.omitted_leaves);
}

fn more(out: &mut String, omitted: usize) {
    if omitted > 0 {
        let _ = writeln!(out, "  ({omitted} more rows)");
    }
}
