//! How often functions run per request, from the Lua probe's counters; and whether the probe changed what LuaJIT
//! compiled.
//!
//! A count is exact for calls that go through the counter. What bypasses it (references to the function itself that
//! somebody held before the probe came) is known by number only, and makes the count a lower bound.

mod compare;
mod render;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use compare::{Comparison, compare};
pub use render::{render, render_comparison};

/// Schema of the document.
pub const SCHEMA: &str = "calls/1";

/// LuaJIT gives a start up at its eleventh abort: the penalty begins at 72, doubles each time, and passes 60,000
/// (lj_trace.c, `PENALTY_MIN` and `PENALTY_MAX` in lj_jit.h).
pub const ABORTS_UNTIL_GIVEN_UP: u64 = 11;

/// How the chunk names of the probe's wrappers begin.
pub const WRAPPER_SOURCE: &str = "=throughline counts ";

/// What was seen of one process in the time watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The process.
    pub pid: u32,
    /// It ended before the time did: what it counted after the last look is missing.
    pub ended: bool,
    /// Functions are wrapped.
    pub counting: bool,
    /// Calls in the time watched.
    pub functions: Vec<FunctionSeen>,
    /// Compiler events since the process began; `None` when the probe does not record them.
    pub events: Option<EventsSeen>,
    /// Errors that the probe kept to itself, and functions that had no room.
    pub probe_errors: u64,
    /// Functions that had no room in the probe's memory.
    pub functions_overflow: u64,
}

/// One function of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSeen {
    /// As it was asked for.
    pub name: String,
    /// Calls in the time watched.
    pub calls: u64,
    /// When it was wrapped, or why not.
    pub installed: Result<Installed, String>,
    /// References that bypass the counter.
    pub captured_references: u32,
    /// The search for them was cut short.
    pub search_cut: bool,
}

/// When a function was wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Installed {
    /// As soon as its module was loaded.
    BeforeLoad,
    /// Later, when others may have held it already.
    AfterLoad,
}

/// Compiler events of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsSeen {
    /// Totals.
    pub totals: EventTotals,
    /// By start of root traces.
    pub starts: Vec<StartFate>,
}

/// How often LuaJIT's compiler did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotals {
    /// Began to record a trace.
    pub start: u64,
    /// Compiled one.
    pub stop: u64,
    /// Aborted one.
    pub abort: u64,
    /// Threw all away.
    pub flush: u64,
    /// Events of starts that had no room in the probe's memory.
    pub lost: u64,
}

/// A bytecode at which root traces may begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartPlace {
    /// Chunk name.
    pub source: String,
    /// Line.
    pub line: u32,
    /// Bytecode.
    pub op: String,
}

/// What became of the attempts at one start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFate {
    /// Where.
    pub start: StartPlace,
    /// Attempts that became a trace.
    pub compiled: u64,
    /// Attempts that were aborted.
    pub aborts: u64,
    /// LuaJIT will not try again, by the number of aborts.
    pub given_up: bool,
    /// Why the last one was aborted; empty for none.
    pub reason: String,
}

impl StartFate {
    /// With `given_up` derived.
    pub fn new(start: StartPlace, compiled: u64, aborts: u64, reason: String) -> Self {
        Self {
            start,
            compiled,
            aborts,
            given_up: aborts >= ABORTS_UNTIL_GIVEN_UP,
            reason,
        }
    }
}

/// Requests in the time watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Counted.
    Known {
        /// How many.
        count: u64,
        /// By what.
        source: String,
    },
    /// Not counted.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallsReport {
    /// Name and version of the document.
    pub schema: &'static str,
    /// Version of the program.
    pub tool: &'static str,
    /// Time watched.
    pub seconds: f64,
    /// Requests in it.
    pub requests: Option<u64>,
    /// Why they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_reason: Option<String>,
    /// What counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_source: Option<String>,
    /// Whether functions were wrapped.
    pub counting: bool,
    /// The functions, in the order in which they were asked for.
    pub functions: Vec<FunctionCalls>,
    /// Always `None`: one run alone cannot say.
    pub probe_changed_jit: Option<bool>,
    /// Why not.
    pub probe_changed_jit_reason: &'static str,
    /// The compiler's events since the processes began.
    pub jit: Option<JitSeen>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jit_reason: Option<&'static str>,
    /// Processes that had a probe.
    pub processes: Vec<u32>,
    /// What limits the counts.
    pub warnings: Vec<String>,
}

/// A function over all processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionCalls {
    /// As it was asked for.
    pub function: String,
    /// Calls in the time watched; `None` when it was never wrapped.
    pub calls: Option<u64>,
    /// Calls by request.
    pub per_request: Option<f64>,
    /// Why one of these is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_reason: Option<String>,
    /// Why the calls are known and the requests are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_request_reason: Option<String>,
    /// When it was wrapped.
    pub installed: Option<Installed>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_reason: Option<String>,
    /// References that bypass the counter.
    pub captured_references: u32,
    /// `false` when the search for them was cut short: there may be more.
    pub captured_references_complete: bool,
}

/// Compiler events over all processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JitSeen {
    /// Sums of the processes' totals.
    pub events: EventTotals,
    /// Each start; compiled is a sum, aborts the greatest of one process, each of which gives up by itself.
    pub starts: Vec<StartFate>,
}

/// Puts what was seen of each process together.
pub fn calls(watched: &[Watched], requests: Requests, seconds: f64) -> CallsReport {
    let mut warnings = Vec::new();
    let (count, requests_reason, requests_source) = match requests {
        Requests::Known { count, source } => (Some(count), None, Some(source)),
        Requests::Unknown { reason } => (None, Some(reason), None),
    };
    let functions = functions(watched, count, requests_reason.as_deref());
    for function in &functions {
        warnings.extend(bypass(function));
    }
    for process in watched {
        let pid = process.pid;
        if process.ended {
            warnings.push(format!(
                "process {pid} ended: what it counted after the last look is missing"
            ));
        }
        if process.probe_errors > 0 {
            warnings.push(format!(
                "the probe in process {pid} met {} errors of its own",
                process.probe_errors
            ));
        }
        if process.functions_overflow > 0 {
            warnings.push(format!(
                "{} functions had no room in the probe's memory",
                process.functions_overflow
            ));
        }
    }
    let jit = jit(watched);
    let wrapper_given_up = jit.as_ref().and_then(|jit| given_up_wrapper(&jit.starts));
    if let Some(start) = wrapper_given_up {
        warnings.push(format!(
            "LuaJIT gave up the wrapper {:?} ({}): the counter may keep its callers from being compiled",
            start.start.source, start.reason
        ));
    }
    CallsReport {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION"),
        seconds,
        requests: count,
        requests_reason,
        requests_source,
        counting: watched.iter().any(|process| process.counting),
        functions,
        probe_changed_jit: None,
        probe_changed_jit_reason: "one run cannot say: compare runs with and without counting (--compare)",
        jit_reason: jit
            .is_none()
            .then_some("the probe was started without events"),
        jit,
        processes: watched.iter().map(|process| process.pid).collect(),
        warnings,
    }
}

fn given_up_wrapper(starts: &[StartFate]) -> Option<&StartFate> {
    starts
        .iter()
        .find(|fate| fate.given_up && fate.start.source.starts_with(WRAPPER_SOURCE))
}

/// What to say of a function whose counter is bypassed.
fn bypass(function: &FunctionCalls) -> Option<String> {
    let references = function.captured_references;
    if references == 0 && function.captured_references_complete {
        return None;
    }
    let how_many = if function.captured_references_complete {
        String::new()
    } else {
        "at least ".to_owned()
    };
    let (noun, verb) = if references == 1 {
        ("reference", "bypasses")
    } else {
        ("references", "bypass")
    };
    let when = match function.installed {
        Some(Installed::AfterLoad) => "installed after load: ",
        _ => "",
    };
    Some(format!(
        "{}: {when}{how_many}{references} {noun} {verb} the counter",
        function.function
    ))
}

fn functions(
    watched: &[Watched],
    requests: Option<u64>,
    requests_reason: Option<&str>,
) -> Vec<FunctionCalls> {
    let mut order: Vec<&str> = Vec::new();
    let mut seen: BTreeMap<&str, Vec<&FunctionSeen>> = BTreeMap::new();
    for function in watched.iter().flat_map(|process| &process.functions) {
        let of_name = seen.entry(&function.name).or_default();
        if of_name.is_empty() {
            order.push(&function.name);
        }
        of_name.push(function);
    }
    order
        .into_iter()
        .filter_map(|name| Some(function(name, seen.get(name)?, requests, requests_reason)))
        .collect()
}

fn function(
    name: &str,
    seen: &[&FunctionSeen],
    requests: Option<u64>,
    requests_reason: Option<&str>,
) -> FunctionCalls {
    // The least favourable of the processes: one in which it came late makes the sum a lower bound.
    let installed = seen
        .iter()
        .filter_map(|seen| seen.installed.as_ref().ok())
        .max()
        .copied();
    let not_installed = seen.iter().find_map(|seen| seen.installed.as_ref().err());
    let calls = installed.map(|_| {
        let of_each = seen.iter().map(|seen| seen.calls);
        of_each.fold(0_u64, u64::saturating_add)
    });
    let per_request = match (calls, requests) {
        (Some(calls), Some(requests)) if requests > 0 => Some(calls as f64 / requests as f64),
        _ => None,
    };
    let missing = || not_installed.cloned().unwrap_or_default();
    FunctionCalls {
        function: name.to_owned(),
        calls,
        calls_reason: installed.is_none().then(missing),
        per_request_reason: match (per_request, calls) {
            (Some(_), _) => None,
            (None, None) => Some(missing()),
            (None, Some(_)) => Some(
                requests_reason
                    .unwrap_or("no request came in the time watched")
                    .to_owned(),
            ),
        },
        per_request,
        installed,
        installed_reason: installed.is_none().then(missing),
        captured_references: seen
            .iter()
            .map(|seen| seen.captured_references)
            .max()
            .unwrap_or(0),
        captured_references_complete: !seen.iter().any(|seen| seen.search_cut),
    }
}

fn jit(watched: &[Watched]) -> Option<JitSeen> {
    let mut totals = EventTotals::default();
    let mut starts: BTreeMap<&StartPlace, StartFate> = BTreeMap::new();
    let mut any = false;
    for events in watched.iter().filter_map(|process| process.events.as_ref()) {
        any = true;
        totals.start = totals.start.saturating_add(events.totals.start);
        totals.stop = totals.stop.saturating_add(events.totals.stop);
        totals.abort = totals.abort.saturating_add(events.totals.abort);
        totals.flush = totals.flush.saturating_add(events.totals.flush);
        totals.lost = totals.lost.saturating_add(events.totals.lost);
        for fate in &events.starts {
            starts
                .entry(&fate.start)
                .and_modify(|known| {
                    known.compiled = known.compiled.saturating_add(fate.compiled);
                    known.given_up |= fate.given_up;
                    if fate.aborts > known.aborts {
                        known.aborts = fate.aborts;
                        known.reason.clone_from(&fate.reason);
                    }
                })
                .or_insert_with(|| fate.clone());
        }
    }
    any.then(|| JitSeen {
        events: totals,
        starts: starts.into_values().collect(),
    })
}

#[cfg(test)]
#[path = "calls/tests.rs"]
mod tests;
