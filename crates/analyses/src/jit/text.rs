//! The state and the comparison as text: what is wrong first. No colour, no control characters.

use std::fmt::Write as _;

use throughline_profile::escape;

use super::diff::{Common, Diff, DiffSide, DiffStart, Relation};
use super::document::{Blacklisted, Events, JitDocument, LuaTrace, Start, StartState, VmState};

/// Rows of one list.
const ROWS: usize = 20;
/// Functions in common that are named; the document has more.
const COMMON_SHOWN: usize = 3;
/// Shares of a cache from which it is called nearly full.
const NEARLY_FULL: f64 = 0.9;

impl JitDocument {
    /// The document as text that ends with a newline.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for vm in &self.vm {
            vm_text(&mut out, vm);
        }
        for process in &self.without_vm {
            line(
                &mut out,
                &format!("pid {}: {}", process.pid, process.reason),
            );
        }
        if let Some(events) = &self.events {
            events_text(&mut out, events);
        }
        out
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(&escape(text));
    out.push('\n');
}

fn vm_text(out: &mut String, vm: &VmState) {
    let given_up = vm.starts.iter().filter(|start| start.given_up).count();
    line(
        out,
        &format!(
            "pid {} VM {} ({}): JIT {}, {} traces{}, machine code {}",
            vm.pid,
            vm.state,
            vm.version,
            if vm.jit_on { "on" } else { "OFF" },
            vm.trace_count,
            of(vm.trace_max),
            machine_code(vm),
        ),
    );
    for trouble in troubles(vm, given_up) {
        line(out, &format!("  ! {trouble}"));
    }
    list(
        out,
        "given up: run by the interpreter for ever, unless inlined elsewhere",
        given_up_rows(vm),
    );
    list(out, "tried in vain, and still tried", tried_rows(vm));
    let off = vm
        .blacklisted
        .iter()
        .filter(|start| start.cause != "aborts");
    list(
        out,
        "switched off by jit.off",
        off.map(switched_off).collect(),
    );
    list(out, "traces", vm.traces.iter().map(trace_row).collect());
    line(
        out,
        &format!(
            "  {} functions looked through in {:.1} ms{}",
            vm.prototypes.count,
            vm.prototypes.look_ns as f64 / 1e6,
            match &vm.prototypes.complete_reason {
                Some(reason) => format!("; not all of them: {reason}"),
                None => String::new(),
            }
        ),
    );
}

fn of(max: Option<u64>) -> String {
    max.map_or_else(String::new, |max| format!(" of {max}"))
}

fn machine_code(vm: &VmState) -> String {
    let kib = |bytes: u64| format!("{:.0} KiB", bytes as f64 / 1024.0);
    match vm.mcode_max_bytes {
        Some(max) => format!(
            "{} used, {} of {}",
            kib(vm.mcode_used_bytes),
            kib(vm.mcode_bytes),
            kib(max)
        ),
        None => format!("{} used, {}", kib(vm.mcode_used_bytes), kib(vm.mcode_bytes)),
    }
}

/// What is wrong, worst first.
fn troubles(vm: &VmState, given_up: usize) -> Vec<String> {
    let mut out = Vec::new();
    if !vm.jit_on {
        out.push(
            "the JIT compiler is switched off for the whole VM: all Lua runs in the interpreter"
                .to_owned(),
        );
    }
    if !vm.changed_while_read.is_empty() {
        out.push(format!(
            "changed while read: {}; what is said of them may be torn",
            vm.changed_while_read.join(", ")
        ));
    }
    let full = |have: u64, max: Option<u64>| {
        max.is_some_and(|max| have as f64 >= NEARLY_FULL * max as f64)
    };
    if full(vm.trace_count, vm.trace_max) {
        out.push("the trace table is nearly full: when it is, LuaJIT throws away all traces and starts again (maxtrace)".to_owned());
    }
    if full(vm.mcode_used_bytes, vm.mcode_max_bytes) {
        out.push(
            "machine code is nearly at its limit: at it, LuaJIT throws away all traces and starts again (maxmcode)".to_owned(),
        );
    }
    if given_up > 0 {
        out.push(format!("{given_up} starts given up after 11 aborts each"));
    }
    if !vm.unreadable_traces.is_empty() {
        out.push(format!(
            "{} traces could not be read",
            vm.unreadable_traces.len()
        ));
    }
    out
}

fn list(out: &mut String, title: &str, rows: Vec<String>) {
    if rows.is_empty() {
        return;
    }
    line(out, &format!("  {title} ({})", rows.len()));
    for row in rows.iter().take(ROWS) {
        line(out, &format!("    {row}"));
    }
    if rows.len() > ROWS {
        line(
            out,
            &format!("    and {} more (--json has all)", rows.len() - ROWS),
        );
    }
}

fn given_up_rows(vm: &VmState) -> Vec<String> {
    let given_up = vm.starts.iter().filter(|start| start.given_up);
    given_up.map(start_row).collect()
}

fn tried_rows(vm: &VmState) -> Vec<String> {
    let mut tried: Vec<&StartState> = vm
        .starts
        .iter()
        .filter(|start| !start.given_up && start.compiled == 0 && start.aborts > 0)
        .collect();
    tried.sort_by_key(|start| std::cmp::Reverse(start.aborts));
    tried.into_iter().map(start_row).collect()
}

fn start_row(start: &StartState) -> String {
    let mut row = format!(
        "{}{}  {} aborts{}",
        start.start.label(),
        function(&start.start),
        start.aborts,
        if start.aborts_bound == "lower" {
            " or more"
        } else {
            ""
        },
    );
    if let Some(reason) = &start.reason {
        let _ = write!(row, ", last: {reason}");
    }
    if !start.body_inlined_in.is_empty() {
        let traces: Vec<String> = start
            .body_inlined_in
            .iter()
            .take(8)
            .map(u32::to_string)
            .collect();
        let _ = write!(row, "; its body is inlined in traces {}", traces.join(", "));
    }
    row
}

fn function(start: &Start) -> String {
    let name = start
        .function
        .as_ref()
        .and_then(|function| function.name.as_deref());
    name.map_or_else(String::new, |name| format!(" in {name}"))
}

fn switched_off(start: &Blacklisted) -> String {
    let source = start.source.as_deref().unwrap_or("(unknown function)");
    let line = start
        .line
        .map_or_else(|| "?".to_owned(), |line| line.to_string());
    format!(
        "{}:{line} {}",
        source.strip_prefix(['@', '=']).unwrap_or(source),
        start.op
    )
}

fn trace_row(trace: &LuaTrace) -> String {
    let from = match (trace.parent, trace.parent_exit) {
        (Some(parent), Some(exit)) => format!(" from trace {parent} exit {exit}"),
        (Some(parent), None) => format!(" stitched to trace {parent}"),
        (None, _) => String::new(),
    };
    let to = if trace.link_to != 0 && trace.link_to != trace.id {
        format!(" to trace {}", trace.link_to)
    } else {
        String::new()
    };
    let inlined = match trace.inlined.len() {
        0 => String::new(),
        1 => ", 1 function inlined".to_owned(),
        count => format!(", {count} functions inlined"),
    };
    format!(
        "{:>5} {}{from}: {}{to}, {} bytes{inlined}",
        trace.id,
        trace.start.label(),
        trace.link,
        trace.mcode_bytes
    )
}

fn events_text(out: &mut String, events: &Events) {
    line(
        out,
        &format!(
            "in {:.1} s ({} looks; what came and went between two is missing): {} recordings, {} traces, {} aborts, {} flushes",
            events.seconds, events.looks, events.start, events.stop, events.abort, events.flush
        ),
    );
    for explanation in &events.explanations {
        line(out, &format!("  ! {explanation}"));
    }
    let rows = events.list.iter().map(|event| {
        let start = event.start.as_ref().map_or_else(String::new, Start::label);
        let reason = event
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(": {reason}"));
        format!("{:>7} ms {:<9} {start}{reason}", event.at_ms, event.kind)
    });
    list(out, "events", rows.collect());
}

impl Diff {
    /// The comparison as text that ends with a newline.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for common in self.common.iter().take(COMMON_SHOWN) {
            line(&mut out, &common_line(common));
        }
        let lost = self.lost();
        if lost.is_empty() {
            line(&mut out, "no start is given up that was not before");
        }
        list(
            &mut out,
            "given up only after",
            lost.iter().map(diff_row).collect(),
        );
        let rows = |starts: &[DiffStart]| starts.iter().map(diff_row).collect();
        list(
            &mut out,
            "given up only before",
            rows(&self.only_before.given_up),
        );
        list(&mut out, "given up in both", rows(&self.both.given_up));
        list(
            &mut out,
            "compiled only before",
            rows(&self.only_before.compiled),
        );
        list(
            &mut out,
            "compiled only after",
            rows(&self.only_after.compiled),
        );
        line(
            &mut out,
            &format!("  {} starts compiled in both", self.both.compiled.len()),
        );
        for (name, side) in [
            ("flushes", &self.flushes),
            ("traces", &self.traces),
            ("bytes of machine code", &self.mcode_bytes),
        ] {
            line(&mut out, &format!("  {name}: {}", sides(side)));
        }
        line(&mut out, "what this does not prove");
        for boundary in &self.boundaries {
            line(&mut out, &format!("  - {boundary}"));
        }
        out
    }
}

/// "all 6 starts given up only after call observe() at log.lua:40".
fn common_line(common: &Common) -> String {
    let who = match common.of {
        1 => "the one start given up only after".to_owned(),
        of if common.reached_by == of => format!("all {of} starts given up only after"),
        of => format!("{} of {of} starts given up only after", common.reached_by),
    };
    let name = match common.name.as_str() {
        "" => "a function".to_owned(),
        name => format!("{name}()"),
    };
    let place = common
        .function
        .as_ref()
        .map_or_else(String::new, |function| {
            let source = &function.source;
            let source = source.strip_prefix(['@', '=']).unwrap_or(source);
            format!(" at {source}:{}", function.first_line)
        });
    let verb = match (common.relation, common.given_up_itself, common.of) {
        (Relation::Callee, true, 1) => "is or calls",
        (Relation::Callee, true, _) => "are or call",
        (Relation::Callee, false, 1) => "calls",
        (Relation::Callee, false, _) => "call",
        (Relation::Caller, _, 1) => "is called by",
        (Relation::Caller, _, _) => "are called by",
    };
    let directly = if common.starts < common.reached_by && common.relation == Relation::Callee {
        format!(
            " ({} call it themselves, others through those)",
            common.starts
        )
    } else {
        String::new()
    };
    format!("{who} {verb} {name}{place}{directly}")
}

fn diff_row(start: &DiffStart) -> String {
    let mut row = format!("{}{}", start.start.label(), function(&start.start));
    if start.aborts > 0 {
        let _ = write!(row, "  {} aborts", start.aborts);
    }
    if let Some(reason) = &start.reason {
        let _ = write!(row, ", last: {reason}");
    }
    if start.vms > 1 {
        let _ = write!(row, ", in {} VMs", start.vms);
    }
    if let Some(moved) = &start.moved_from {
        let _ = write!(row, "; was {}", moved.label());
    }
    if start.other_state != "absent" {
        let _ = write!(
            row,
            "; {} in the other state",
            start.other_state.replace('_', " ")
        );
    }
    row
}

fn sides(side: &DiffSide) -> String {
    let one = |value: Option<u64>, reason: &Option<String>| match (value, reason) {
        (Some(value), _) => value.to_string(),
        (None, Some(reason)) => format!("unknown ({reason})"),
        (None, None) => "unknown".to_owned(),
    };
    format!(
        "{} before, {} after",
        one(side.before, &side.before_reason),
        one(side.after, &side.after_reason)
    )
}
