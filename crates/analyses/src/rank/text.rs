//! The ranking as text for a terminal or a log; no colour, no control characters.

use std::fmt::Write as _;

use throughline_evidence::Boundary;
use throughline_profile::FrameKind;
use throughline_units::Nanos;

use super::{
    Heading, InC, LineRow, LuaRow, NativeRow, OffCpuRank, OnCpuRank, RankBy, RankReport,
    SampleCost, WaitCost, WaitRow, WithoutLua, share,
};
use crate::shown::{percent, shown};

/// The report as text that ends with a newline.
#[must_use]
pub fn render(report: &RankReport) -> String {
    match report {
        RankReport::OnCpu(report) => on_cpu(report),
        RankReport::OffCpu(report) => off_cpu(report),
    }
}

fn on_cpu(report: &OnCpuRank) -> String {
    let of = &report.denominators;
    let mut out = format!(
        "On-CPU samples of {}: {} at {} Hz\n",
        capture(&report.heading),
        of.samples,
        report.heading.rate_hz
    );
    crate::categories::table(
        &mut out,
        &report.categories,
        &report.uncategorised,
        of.samples,
    );
    crate::per_request::line(&mut out, &of.requests);
    let columns = ["self", "samples", "incl", "samples"];
    let order = order(report.heading.by);
    table(
        &mut out,
        &format!(
            "Lua functions by {order}; shares of the {} samples with Lua context",
            of.lua_context
        ),
        columns,
        report.lua.iter().map(|row| (samples(&row.cost), lua(row))),
        report.omitted.lua,
    );
    table(
        &mut out,
        &format!(
            "Lua lines by {order}; shares of the {} samples with Lua context",
            of.lua_context
        ),
        columns,
        report
            .lines
            .iter()
            .map(|row| (samples(&row.cost), line(row))),
        report.omitted.lines,
    );
    table(
        &mut out,
        &format!(
            "Machine code by {order}; shares of all {} samples",
            of.samples
        ),
        columns,
        report
            .native
            .iter()
            .map(|row| (samples(&row.cost), native(row))),
        report.omitted.native,
    );
    without_lua(&mut out, &report.without_lua_context, |samples| {
        format!("{samples} samples")
    });
    if of.no_stack > 0 {
        let _ = writeln!(out, "Without any stack, in no row: {} samples", of.no_stack);
    }
    let _ = writeln!(out, "\nLedger: {}", report.ledger);
    boundaries(&mut out, &report.boundaries);
    out
}

fn off_cpu(report: &OffCpuRank) -> String {
    let of = &report.denominators;
    let (blocked, lua_context) = (Nanos(of.blocked_ns), Nanos(of.lua_context_ns));
    let mut out = format!(
        "Off-CPU time of {}, waits of {} to {}\n",
        capture(&report.heading),
        Nanos(report.min_block_ns),
        limit(report.max_block_ns)
    );
    let _ = writeln!(
        out,
        "  blocked    {:>9} in {} waits, of it {} in the run queue after the wakeup ({} wakeups not seen)\n  \
           idle       {:>9} in {} waits for work\n  preempted  {:>9} in {} stretches",
        blocked.to_string(),
        of.blocked_waits,
        Nanos(of.blocked_runnable_ns),
        of.blocked_waits_without_wakeup,
        Nanos(of.idle_ns).to_string(),
        of.idle_waits,
        Nanos(of.preempted_ns).to_string(),
        of.preempted_stretches,
    );
    waits(
        &mut out,
        &format!("Blocked, by time; shares of {blocked} blocked"),
        &report.waits,
        report.omitted_waits,
    );
    waits(
        &mut out,
        &format!("Idle, by time; shares of {} idle", Nanos(of.idle_ns)),
        &report.idle,
        report.omitted_idle,
    );
    let columns = ["self", "blocked", "incl", "blocked"];
    let order = order(report.heading.by);
    table(
        &mut out,
        &format!("Lua functions by {order}; shares of {lua_context} blocked with Lua context"),
        columns,
        report.lua.iter().map(|row| (times(&row.cost), lua(row))),
        report.omitted.lua,
    );
    table(
        &mut out,
        &format!("Lua lines by {order}; shares of {lua_context} blocked with Lua context"),
        columns,
        report.lines.iter().map(|row| (times(&row.cost), line(row))),
        report.omitted.lines,
    );
    table(
        &mut out,
        &format!("Machine code by {order}, scheduler looked through; shares of {blocked} blocked"),
        columns,
        report
            .native
            .iter()
            .map(|row| (times(&row.cost), native(row))),
        report.omitted.native,
    );
    without_lua(&mut out, &report.without_lua_context, |ns| {
        format!("{} blocked", Nanos(ns))
    });
    let _ = writeln!(out, "\nLedger: {}", report.ledger);
    boundaries(&mut out, &report.boundaries);
    out
}

/// `capture 1, 30.0 s`, with what makes it less than a whole one.
fn capture(heading: &Heading) -> String {
    let mut text = format!("capture {}, {:.1} s", heading.capture, heading.seconds);
    if let Some(pid) = heading.pid {
        let _ = write!(text, ", process {pid}");
    }
    if !heading.complete {
        text.push_str(", INCOMPLETE (the recording was not finished)");
    }
    text
}

fn order(by: RankBy) -> &'static str {
    match by {
        RankBy::SelfWeight => "self",
        RankBy::Inclusive => "inclusive",
    }
}

fn limit(ns: u64) -> String {
    if ns == u64::MAX {
        "any length".to_owned()
    } else {
        Nanos(ns).to_string()
    }
}

/// A heading, four columns of numbers and a name; nothing at all when there are no rows.
fn table(
    out: &mut String,
    title: &str,
    columns: [&str; 4],
    rows: impl Iterator<Item = ([String; 4], String)>,
    omitted: usize,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let [a, b, c, d] = columns;
    let _ = writeln!(out, "\n{title}\n  {a:>7} {b:>9}  {c:>7} {d:>9}  where");
    for ([a, b, c, d], name) in rows {
        let _ = writeln!(out, "  {a:>7} {b:>9}  {c:>7} {d:>9}  {name}");
    }
    more(out, omitted);
}

fn waits(out: &mut String, title: &str, rows: &[WaitRow], omitted: usize) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{title}\n  {:>7} {:>9} {:>7} {:>9}  kernel function < machine code < Lua line (woken by)",
        "share", "time", "waits", "longest"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "  {:>7} {:>9} {:>7} {:>9}  {}",
            percent(row.waits.share),
            Nanos(row.waits.total_ns).to_string(),
            row.waits.count,
            Nanos(row.waits.longest_ns).to_string(),
            wait(row)
        );
    }
    more(out, omitted);
}

/// `rwsem_down_write_slowpath < write < append @log.lua:31 (woken by nginx 7/7 96 %)`.
fn wait(row: &WaitRow) -> String {
    let or_reason = |name: &Option<String>, reason: Option<&str>| match name {
        Some(name) => shown(name),
        None => format!("[{}]", reason.unwrap_or("not known")),
    };
    let mut text = format!(
        "{} < {}",
        or_reason(&row.wait_function, row.wait_function_reason),
        or_reason(&row.native_function, row.native_function_reason)
    );
    match (&row.lua_function, &row.lua_line) {
        (Some(function), Some(line)) => {
            let _ = write!(text, " < {} {}", shown(function), shown(line));
        }
        (function, line) => {
            let name = or_reason(
                &function.clone().or_else(|| line.clone()),
                row.lua_line_reason,
            );
            let _ = write!(text, " < {name}");
        }
    }
    if let Some(waker) = row.wakers.first() {
        let _ = write!(
            text,
            " (woken by {} {}/{} {})",
            shown(&waker.comm),
            waker.pid,
            waker.tid,
            percent(share(waker.woke_ns, row.waits.total_ns)).trim()
        );
    }
    text
}

fn more(out: &mut String, omitted: usize) {
    if omitted > 0 {
        let _ = writeln!(out, "  ({omitted} more rows)");
    }
}

fn samples(cost: &SampleCost) -> [String; 4] {
    [
        percent(cost.self_share),
        cost.self_samples.to_string(),
        percent(cost.inclusive_share),
        cost.inclusive_samples.to_string(),
    ]
}

fn times(cost: &WaitCost) -> [String; 4] {
    [
        percent(cost.self_share),
        Nanos(cost.self_blocked_ns).to_string(),
        percent(cost.inclusive_share),
        Nanos(cost.inclusive_blocked_ns).to_string(),
    ]
}

fn lua<C>(row: &LuaRow<C>) -> String {
    let builtin = if row.kind == FrameKind::LuaBuiltin {
        " [built-in]"
    } else {
        ""
    };
    format!(
        "{}{builtin}{}",
        with_place(&row.function, row.source.as_deref()),
        in_c(row.in_c.as_ref())
    )
}

/// How much of the self share is C, where that is known and not nothing.
fn in_c(split: Option<&InC>) -> String {
    let Some(split) = split.filter(|split| split.self_in_c_samples > 0) else {
        return String::new();
    };
    format!(
        "  ({} own, {} in C)",
        percent(split.self_in_lua_share),
        percent(split.self_in_c_share)
    )
}

fn line<C>(row: &LineRow<C>) -> String {
    format!(
        "{}{}",
        with_place(&row.function, row.source.as_deref()),
        in_c(row.in_c.as_ref())
    )
}

fn with_place(function: &str, source: Option<&str>) -> String {
    match source {
        Some(source) => format!("{}  {}", shown(function), shown(source)),
        None => shown(function),
    }
}

fn native<C>(row: &NativeRow<C>) -> String {
    let module = row.module.as_deref().unwrap_or(row.kind.as_str());
    let mut text = format!("{}  [{}]", shown(&row.function), shown(module));
    if let Some(reason) = &row.name_reason {
        let _ = write!(text, "  (no name: {})", shown(reason));
    }
    text
}

fn without_lua(out: &mut String, without: &WithoutLua, unit: impl Fn(u64) -> String) {
    let _ = write!(
        out,
        "\nWithout Lua context: {} ({})",
        unit(without.weight),
        percent(without.share)
    );
    for (i, (reason, &weight)) in without.reasons.iter().enumerate() {
        let lead = if i > 0 { ", " } else { ": " };
        let _ = write!(out, "{lead}{reason} {}", unit(weight));
    }
    out.push('\n');
}

fn boundaries(out: &mut String, boundaries: &[Boundary]) {
    out.push_str("\nWhat this does not prove\n");
    for Boundary(text) in boundaries {
        let _ = writeln!(out, "  - {text}");
    }
}
