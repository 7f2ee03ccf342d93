//! Calls as text.

use std::fmt::Write as _;

use throughline_profile::escape;

use super::{CallsReport, Comparison, FunctionCalls};

/// The report as lines of text; names are escaped.
pub fn render(report: &CallsReport) -> String {
    let mut text = match (report.requests, &report.requests_reason) {
        (Some(requests), _) => format!(
            "{requests} requests in {:.1} s ({})\n",
            report.seconds,
            escape(report.requests_source.as_deref().unwrap_or_default())
        ),
        (None, reason) => format!(
            "{:.1} s watched; requests are not known: {}\n",
            report.seconds,
            escape(reason.as_deref().unwrap_or_default())
        ),
    };
    let width = report
        .functions
        .iter()
        .map(|function| escape(&function.function).chars().count())
        .max()
        .unwrap_or(0)
        .clamp(8, 60);
    if !report.functions.is_empty() {
        let _ = writeln!(text, "{:width$}  {:>12}  per request", "function", "calls");
    }
    for function in &report.functions {
        let _ = writeln!(text, "{}", line(function, width));
    }
    if let Some(jit) = &report.jit {
        let given_up = jit.starts.iter().filter(|start| start.given_up).count();
        let _ = writeln!(
            text,
            "compiler: {} attempts, {} traces, {} aborts, {} flushes; {given_up} starts given up",
            jit.events.start, jit.events.stop, jit.events.abort, jit.events.flush
        );
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {}", escape(warning));
    }
    text
}

fn line(function: &FunctionCalls, width: usize) -> String {
    let name = escape(&function.function);
    let Some(calls) = function.calls else {
        let reason = function.calls_reason.as_deref().unwrap_or_default();
        return format!("{name:width$}  {:>12}  {}", "not counted", escape(reason));
    };
    match function.per_request {
        Some(per_request) => format!("{name:width$}  {calls:>12}  {per_request:.3}"),
        None => format!("{name:width$}  {calls:>12}  not known"),
    }
}

/// The comparison as lines of text; names are escaped.
pub fn render_comparison(comparison: &Comparison) -> String {
    let answer = match comparison.probe_changed_jit {
        Some(true) => "yes",
        Some(false) => "no",
        None => "cannot be said",
    };
    let mut text = format!(
        "counting changed what LuaJIT compiled: {answer}\n  {}\n  {} runs without counting, {} with\n",
        comparison.probe_changed_jit_reason, comparison.runs.without, comparison.runs.with
    );
    let lists = [
        ("given up only without", &comparison.given_up_only.without),
        ("given up only with", &comparison.given_up_only.with),
        ("compiled only without", &comparison.compiled_only.without),
        ("compiled only with", &comparison.compiled_only.with),
        ("wrapper given up", &comparison.wrappers_given_up),
    ];
    for (what, keys) in lists {
        for key in keys {
            let _ = writeln!(text, "  {what}: {}", escape(key));
        }
    }
    text
}
