//! What does one function cost over all the stacks and request phases that it appears in?
//!
//! What is counted, in on-CPU samples:
//! - *matches*: the functions that the question means: by their exact name, else by `source:line` (where they are defined, or a line in
//!   them), else by a part of their name or place. All of them together are looked at, and all are listed.
//! - *self*: the sample's innermost frame of that sort is in a match. For Lua that is the innermost Lua frame, whatever C code it called,
//!   as in `rank`; how much of it is the function's own bytecode stands beside it.
//! - *inclusive*: the sample holds a match; recursion counts once. The C code, the collector and the kernel below it are included.
//! - *entered from*: the outermost Lua function of the phase in which the outermost match runs (nginx: the `*_by_lua` chunk), with the
//!   nginx handler that runs it, the nginx function from which that was called, and the line at which the call left the phase's first
//!   function. Shares are of the inclusive cost.
//!
//! Shares of Lua functions are of the samples with Lua context, those of others of all samples.
//!
//! Ways in which the answer may mislead: a call that never had a sample is not among the entries; two calls from one line are one entry;
//! frames that the recorder could not see (inlined in a trace, a tail call) are not looked through.

mod entries;
mod matching;
mod text;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use throughline_evidence::Boundary;
use throughline_profile::{
    Frame, FrameId, FrameKind, Function, Ledger, LuaContext, Measure, Profile, StackId,
};

use crate::categories::{CategoryCounts, CategoryRow, Uncategorised};
use crate::per_request::{PerRequest, Requests};
use crate::rank::{FEWEST_SAMPLES, is_in_vm, place};
use crate::share;

pub use entries::Entry;
pub use matching::{Match, MatchedBy};
pub use text::render;

/// What the roll-up does not prove.
const BOUNDARIES: [&str; 3] = [
    "The inclusive cost is where samples landed under the function, not what removing it would gain; only a paired run, with the code \
     and without, measures that.",
    "Entries are those that had samples; calls are counted by a probe, not by samples.",
    "Time per request is an average over all requests of the recording: it does not say that each of them pays it.",
];

/// What to roll up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// Name, `source:line`, or a part of one.
    pub function: String,
    /// Only samples of this process.
    pub pid: Option<u32>,
    /// Most rows of each list; `None` for all.
    pub limit: Option<usize>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing is called so (exit code 1).
    #[error("no function of the capture's running threads matches `{}`; `throughline rank` lists their names", throughline_profile::escape(.0))]
    NoMatch(String),
    /// Too few samples in all (exit code 3).
    #[error(
        "not enough data: {found} on-CPU samples, {FEWEST_SAMPLES} needed; record for longer, at a higher rate, or under load"
    )]
    TooFew {
        /// How many there are.
        found: u64,
    },
}

/// The roll-up, as `path --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathReport {
    /// Name and version of the document.
    pub schema: &'static str,
    /// Version of the tool that made it.
    pub tool: &'static str,
    /// Number of the capture in its case.
    pub capture: u32,
    /// Length of the recording in s.
    pub seconds: f64,
    /// Sampling rate in Hz.
    pub rate_hz: u32,
    /// Whether the recording ended by itself and in full.
    pub complete: bool,
    /// What was asked for.
    pub function: String,
    /// How it was found.
    pub matched_by: MatchedBy,
    /// What was found, the most expensive first.
    pub matches: Vec<Match>,
    /// Matches that a limit left out of the list; they are in the cost.
    pub omitted_matches: usize,
    /// Totals.
    pub denominators: Denominators,
    /// Of which total `self_share` and `inclusive_share` are.
    pub share_of: &'static str,
    /// Samples whose innermost frame of this sort is a match.
    pub self_samples: u64,
    /// Their share.
    pub self_share: f64,
    /// Those of them that were in the VM itself: the function's own bytecode, interpreted or compiled.
    pub self_in_lua: Option<Part>,
    /// Why there is none.
    pub self_in_lua_reason: Option<&'static str>,
    /// Samples that hold a match.
    pub inclusive_samples: u64,
    /// Their share.
    pub inclusive_share: f64,
    /// How many times as large the inclusive cost is as self.
    pub inclusive_to_self: Option<f64>,
    /// Why there is none.
    pub inclusive_to_self_reason: Option<&'static str>,
    /// How many times as large the inclusive cost is as the function's own bytecode: what a look at Lua alone leaves out.
    pub inclusive_to_self_in_lua: Option<f64>,
    /// Why there is none.
    pub inclusive_to_self_in_lua_reason: Option<&'static str>,
    /// Where its phases began; shares of the inclusive samples.
    pub entered_from: Vec<Entry>,
    /// Entries that a limit left out.
    pub omitted_entries: usize,
    /// Samples under a match that no Lua function led to.
    pub entered_without_lua: u64,
    /// What sort of code the inclusive samples were in; shares of them.
    pub cost_by_category: Vec<CategoryRow>,
    /// Inclusive samples without a category.
    pub uncategorised: Uncategorised,
    /// Innermost machine code of the inclusive samples; shares of them.
    pub cost_by_native_leaf: Vec<LeafRow>,
    /// Leaves that a limit left out.
    pub omitted_leaves: usize,
    /// Inclusive CPU time per request in us.
    pub us_per_request: Option<f64>,
    /// Why there is none.
    pub us_per_request_reason: Option<String>,
    /// Calls per request.
    pub calls_per_request: Option<f64>,
    /// Why there is none.
    pub calls_per_request_reason: Option<&'static str>,
    /// Ledger of the on-CPU samples of the whole capture.
    pub ledger: Ledger,
    /// What this does not prove.
    pub boundaries: Vec<Boundary>,
}

/// A part of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// How many.
    pub samples: u64,
    /// Their share.
    pub share: f64,
}

/// Totals in samples, and the requests beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denominators {
    /// Samples looked at.
    pub samples: u64,
    /// Those with Lua frames.
    pub lua_context: u64,
    /// Requests beside the samples.
    #[serde(flatten)]
    pub requests: Requests,
}

/// Machine code in which inclusive samples ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeafRow {
    /// Name, or place where it has none.
    pub function: String,
    /// Program, kernel, interpreter, JIT.
    pub kind: FrameKind,
    /// File name of its module.
    pub module: Option<String>,
    /// Why there is no module.
    pub module_reason: Option<&'static str>,
    /// Samples that end in it.
    pub samples: u64,
    /// Their share of the inclusive samples.
    pub share: f64,
}

/// Rolls one function up.
///
/// # Errors
/// When the profile has too few samples to say anything, or nothing matches.
pub fn path(profile: &Profile, plan: &PathPlan) -> Result<PathReport, PathError> {
    let weights = Samples::of(profile, plan.pid);
    if weights.all < FEWEST_SAMPLES {
        return Err(PathError::TooFew { found: weights.all });
    }
    let found = matching::find(profile, &plan.function, &weights.stacks);
    if found.functions.is_empty() {
        return Err(PathError::NoMatch(plan.function.clone()));
    }
    let per_request = PerRequest::of(&profile.capture, plan.pid);
    let roll = Roll::of(profile, plan.pid, &found.frames);
    let all_lua = found
        .functions
        .iter()
        .all(|function| function.kind.is_lua());
    let (share_of, whole) = if all_lua {
        ("lua_context", weights.lua_context)
    } else {
        ("samples", weights.all)
    };
    let (us_per_request, us_per_request_reason) = per_request.cost(roll.inclusive);
    let in_lua = all_lua.then_some(roll.self_in_lua);
    let (matches, omitted_matches) = limited(found.rows(profile, &weights.stacks), plan.limit);
    let (entered_from, omitted_entries) = limited(roll.entries.rows(roll.inclusive), plan.limit);
    let (cost_by_native_leaf, omitted_leaves) = limited(roll.leaf_rows(profile), plan.limit);
    Ok(PathReport {
        schema: "path/1",
        tool: env!("CARGO_PKG_VERSION"),
        capture: profile.capture.number,
        seconds: profile.capture.duration.as_secs_f64(),
        rate_hz: profile.capture.rate_hz,
        complete: profile.capture.complete,
        function: plan.function.clone(),
        matched_by: found.by,
        matches,
        omitted_matches,
        denominators: Denominators {
            samples: weights.all,
            lua_context: weights.lua_context,
            requests: Requests::of(&profile.capture),
        },
        share_of,
        self_samples: roll.own,
        self_share: share(roll.own, whole),
        self_in_lua: in_lua.map(|samples| Part {
            samples,
            share: share(samples, whole),
        }),
        self_in_lua_reason: (!all_lua).then_some("not all matches are Lua functions"),
        inclusive_samples: roll.inclusive,
        inclusive_share: share(roll.inclusive, whole),
        inclusive_to_self: times(roll.inclusive, roll.own),
        inclusive_to_self_reason: (roll.own == 0).then_some("no sample is its self"),
        inclusive_to_self_in_lua: in_lua.and_then(|own| times(roll.inclusive, own)),
        inclusive_to_self_in_lua_reason: match in_lua {
            None => Some("not all matches are Lua functions"),
            Some(0) => Some("no sample is in its own bytecode"),
            Some(_) => None,
        },
        entered_from,
        omitted_entries,
        entered_without_lua: roll.entries.without_lua,
        cost_by_category: roll.categories.rows(&per_request),
        uncategorised: roll.categories.uncategorised(),
        cost_by_native_leaf,
        omitted_leaves,
        us_per_request,
        us_per_request_reason,
        calls_per_request: None,
        calls_per_request_reason: Some(
            "samples do not count calls, and the capture has no count of a probe",
        ),
        ledger: crate::rank::on_cpu_ledger(profile),
        boundaries: BOUNDARIES
            .iter()
            .map(|&text| Boundary(text.to_owned()))
            .collect(),
    })
}

/// How many times as large; `None` of nothing.
fn times(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| whole as f64 / part as f64)
}

/// On-CPU samples by stack.
struct Samples {
    all: u64,
    lua_context: u64,
    stacks: BTreeMap<StackId, u64>,
}

impl Samples {
    fn of(profile: &Profile, pid: Option<u32>) -> Self {
        let mut samples = Self {
            all: 0,
            lua_context: 0,
            stacks: BTreeMap::new(),
        };
        for sample in on_cpu(profile, pid) {
            samples.all += 1;
            samples.lua_context += u64::from(sample.lua == LuaContext::With);
            if let Some(stack) = sample.stack {
                *samples.stacks.entry(stack).or_default() += 1;
            }
        }
        samples
    }
}

fn on_cpu(
    profile: &Profile,
    pid: Option<u32>,
) -> impl Iterator<Item = &throughline_profile::Sample> {
    profile.samples.iter().filter(move |sample| {
        Measure::of(sample.kind).0 == Measure::OnCpu
            && pid.is_none_or(|pid| profile.threads.get(sample.thread).pid == pid)
    })
}

/// Sums over the samples that hold a match.
struct Roll {
    own: u64,
    self_in_lua: u64,
    inclusive: u64,
    entries: entries::Entries,
    categories: CategoryCounts,
    leaves: BTreeMap<Option<Function>, u64>,
}

impl Roll {
    fn of(profile: &Profile, pid: Option<u32>, frames: &BTreeSet<FrameId>) -> Self {
        let mut roll = Self {
            own: 0,
            self_in_lua: 0,
            inclusive: 0,
            entries: entries::Entries::default(),
            categories: CategoryCounts::default(),
            leaves: BTreeMap::new(),
        };
        for sample in on_cpu(profile, pid) {
            let Some(stack) = sample.stack else { continue };
            let leaf_first: Vec<FrameId> = profile.stacks.frames_leaf_first(stack).collect();
            let Some(outermost) = leaf_first.iter().rposition(|frame| frames.contains(frame))
            else {
                continue;
            };
            roll.inclusive += 1;
            if is_self(profile, &leaf_first, frames) {
                roll.own += 1;
                roll.self_in_lua += u64::from(is_in_vm(profile, stack));
            }
            roll.categories.add(sample);
            *roll
                .leaves
                .entry(leaf_of(profile, &leaf_first))
                .or_default() += 1;
            let outwards = leaf_first.get(outermost..).unwrap_or_default();
            roll.entries.add(profile, outwards);
        }
        roll
    }

    fn leaf_rows(&self, profile: &Profile) -> Vec<LeafRow> {
        let mut rows: Vec<LeafRow> = self
            .leaves
            .iter()
            .map(|(function, &samples)| LeafRow {
                function: function.map_or_else(
                    || "[no machine code]".to_owned(),
                    |function| profile.strings.get(function.name).to_owned(),
                ),
                kind: function.map_or(FrameKind::Marker, |function| function.kind),
                module: function.and_then(|function| module_of(profile, function)),
                module_reason: function
                    .and_then(|function| function.module)
                    .is_none()
                    .then_some("not mapped from a file"),
                samples,
                share: share(samples, self.inclusive),
            })
            .collect();
        rows.sort_by(|a, b| {
            (Reverse(a.samples), &a.function).cmp(&(Reverse(b.samples), &b.function))
        });
        rows
    }
}

/// Whether the innermost frame of a match's sort is a match: for Lua the innermost Lua frame, else the innermost machine code.
fn is_self(profile: &Profile, leaf_first: &[FrameId], frames: &BTreeSet<FrameId>) -> bool {
    let frame = |id: &FrameId| profile.frames.get(*id);
    let innermost = |wanted: fn(&Frame) -> bool| leaf_first.iter().find(|id| wanted(frame(id)));
    let lua = innermost(|frame| frame.kind.is_lua());
    let native = innermost(is_machine_code);
    [lua, native]
        .into_iter()
        .flatten()
        .any(|id| frames.contains(id))
}

fn is_machine_code(frame: &Frame) -> bool {
    !frame.kind.is_lua() && frame.kind != FrameKind::Marker
}

fn leaf_of(profile: &Profile, leaf_first: &[FrameId]) -> Option<Function> {
    leaf_first
        .iter()
        .map(|&id| profile.frames.get(id))
        .find(|frame| is_machine_code(frame))
        .map(Function::of)
}

/// File name of a function's module.
fn module_of(profile: &Profile, function: Function) -> Option<String> {
    let path = profile
        .strings
        .get(profile.modules.get(function.module?).path);
    path.rsplit('/').next().map(str::to_owned)
}

/// Chunk name and line, or why there is none.
fn source_of(
    profile: &Profile,
    frame: &Frame,
    line: u32,
) -> (Option<String>, Option<&'static str>) {
    if frame.kind == FrameKind::Lua {
        place(profile, frame.source, line)
    } else {
        (None, Some("no Lua function"))
    }
}

fn limited<R>(mut rows: Vec<R>, limit: Option<usize>) -> (Vec<R>, usize) {
    let kept = limit.unwrap_or(usize::MAX).min(rows.len());
    let omitted = rows.len() - kept;
    rows.truncate(kept);
    (rows, omitted)
}
