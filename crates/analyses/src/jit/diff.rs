//! Two states compared as sets of starts.
//!
//! A start is the same when source, line and bytecode are. Where the file changed in between, lines moved: what is left
//! over on both sides is matched by function, bytecode and distance from the function's first line, then by function and
//! bytecode in the order of lines. Where the program was installed elsewhere, the last two parts of the path stand for the
//! file, and all of that is tried again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::document::{FunctionPlace, JitDocument, Start, StartState};

/// A start in a comparison, all VMs of one state taken together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiffStart {
    /// The start, as the state after has it where both have it.
    pub start: Start,
    /// Where it was before, when that is another line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<Start>,
    /// VMs in which this holds.
    pub vms: u64,
    /// Most aborts in one VM.
    pub aborts: u32,
    /// Why the last one failed.
    pub reason: Option<String>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_reason: Option<String>,
    /// What it was in the other state: "compiled", "given_up", "aborted", "absent".
    pub other_state: String,
}

/// Starts that were compiled, and those that were given up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiffSet {
    /// A root trace starts there in at least one VM.
    pub compiled: Vec<DiffStart>,
    /// Given up in at least one VM.
    pub given_up: Vec<DiffStart>,
}

/// A number of each state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiffSide {
    /// Before.
    pub before: Option<u64>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_reason: Option<String>,
    /// After.
    pub after: Option<u64>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_reason: Option<String>,
}

/// How a function is common to starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Their functions call it.
    #[default]
    Callee,
    /// It calls their functions.
    Caller,
}

/// A function that lost starts have in common.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// How.
    pub relation: Relation,
    /// Its name where it is called.
    pub name: String,
    /// Where it is defined, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionPlace>,
    /// Lost starts that have it.
    pub starts: u64,
    /// Lost starts that are it or reach it, directly or through functions with starts of their own; of a caller the same
    /// as `starts`.
    #[serde(default)]
    pub reached_by: u64,
    /// Whether it was given up itself: a caller's trace that meets it is aborted, until the caller is given up too.
    #[serde(default)]
    pub given_up_itself: bool,
    /// Lost starts.
    pub of: u64,
}

/// The comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// `jit-diff/1`.
    pub schema: String,
    /// Version of the tool.
    pub tool: String,
    /// Functions that the lost starts have in common, most of them first.
    pub common: Vec<Common>,
    /// Only in the first state.
    pub only_before: DiffSet,
    /// Only in the second state.
    pub only_after: DiffSet,
    /// In both.
    pub both: DiffSet,
    /// Flushes while each state was watched.
    pub flushes: DiffSide,
    /// Traces.
    pub traces: DiffSide,
    /// Allocated bytes of machine code.
    pub mcode_bytes: DiffSide,
    /// What may make the comparison mislead.
    pub boundaries: Vec<String>,
}

impl Diff {
    /// Starts that are given up after and were not before: what the change cost.
    pub fn lost(&self) -> &[DiffStart] {
        &self.only_after.given_up
    }
}

/// Fewer starts have nothing in common that would be worth a sentence.
const COMMON_STARTS: u64 = 2;

/// Functions that are named at most.
const COMMON_MAX: usize = 8;

/// Compares two states.
pub fn diff(before: &JitDocument, after: &JitDocument) -> Diff {
    let (old, new) = (starts(before), starts(after));
    let pairs = pair(&old, &new);
    let mut out = Diff {
        schema: "jit-diff/1".to_owned(),
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        flushes: side(before, after, flushes),
        traces: side(before, after, |document| sum(document, |vm| vm.trace_count)),
        mcode_bytes: side(before, after, |document| sum(document, |vm| vm.mcode_bytes)),
        boundaries: boundaries(before, after),
        ..Diff::default()
    };
    let mut lost = Vec::new();
    for pair in &pairs {
        let (was, is) = (
            pair.before.map(|at| &old[at]),
            pair.after.map(|at| &new[at]),
        );
        for kind in [Kind::Compiled, Kind::GivenUp] {
            let had = was.filter(|start| kind.holds(start));
            let has = is.filter(|start| kind.holds(start));
            let (set, entry) = match (had, has) {
                (Some(had), Some(has)) => (&mut out.both, entry(has, kind, Some(had), was)),
                (Some(had), None) => (&mut out.only_before, entry(had, kind, None, is)),
                (None, Some(has)) => {
                    if kind == Kind::GivenUp {
                        lost.push(has);
                    }
                    (&mut out.only_after, entry(has, kind, None, was))
                }
                (None, None) => continue,
            };
            match kind {
                Kind::Compiled => set.compiled.push(entry),
                Kind::GivenUp => set.given_up.push(entry),
            }
        }
    }
    out.common = common(&lost, &new);
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Compiled,
    GivenUp,
}

impl Kind {
    fn holds(self, start: &Merged<'_>) -> bool {
        self.vms(start) > 0
    }

    fn vms(self, start: &Merged<'_>) -> u64 {
        match self {
            Kind::Compiled => start.compiled_in,
            Kind::GivenUp => start.given_up_in,
        }
    }
}

/// A start of one state, all its VMs taken together.
struct Merged<'a> {
    state: &'a StartState,
    compiled_in: u64,
    given_up_in: u64,
    aborts: u32,
}

impl Merged<'_> {
    fn name(start: Option<&Self>) -> &'static str {
        match start {
            None => "absent",
            Some(start) if start.given_up_in > 0 => "given_up",
            Some(start) if start.compiled_in > 0 => "compiled",
            Some(_) => "aborted",
        }
    }
}

type Key<'a> = (&'a str, u32, &'a str, u32);

fn key(start: &Start) -> Key<'_> {
    (
        start.source.as_deref().unwrap_or_default(),
        start.line.unwrap_or_default(),
        &start.op,
        start.instruction,
    )
}

/// Starts by source, line, bytecode and place in the function.
fn starts(document: &JitDocument) -> Vec<Merged<'_>> {
    let mut merged: BTreeMap<Key<'_>, Merged<'_>> = BTreeMap::new();
    let known = |state: &&StartState| state.start.source.is_some();
    for state in document.vm.iter().flat_map(|vm| &vm.starts).filter(known) {
        let entry = merged.entry(key(&state.start)).or_insert(Merged {
            state,
            compiled_in: 0,
            given_up_in: 0,
            aborts: 0,
        });
        entry.compiled_in += u64::from(state.compiled > 0);
        entry.given_up_in += u64::from(state.given_up);
        entry.aborts = entry.aborts.max(state.aborts);
        // The VM that tells most about it speaks for all.
        if (state.given_up, state.aborts) > (entry.state.given_up, entry.state.aborts) {
            entry.state = state;
        }
    }
    merged.into_values().collect()
}

/// A start of both states, or of one.
struct Pair {
    before: Option<usize>,
    after: Option<usize>,
}

/// Matches by ever weaker keys what the stronger ones left over. Starts with the same key are matched in the order of
/// their lines.
fn pair(old: &[Merged<'_>], new: &[Merged<'_>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut left_old: BTreeSet<usize> = (0..old.len()).collect();
    let mut left_new: BTreeSet<usize> = (0..new.len()).collect();
    let strengths = [Strength::Line, Strength::Distance, Strength::Function];
    let files: [fn(&str) -> &str; 2] = [whole_path, end_of_path];
    for (file, strength) in files
        .into_iter()
        .flat_map(|file| strengths.map(|strength| (file, strength)))
    {
        let mut waiting: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for &at in &left_old {
            if let Some(key) = strength.key(&old[at].state.start, file) {
                waiting.entry(key).or_default().push(at);
            }
        }
        for at in left_new.clone() {
            let waiting = strength
                .key(&new[at].state.start, file)
                .and_then(|key| waiting.get_mut(&key));
            if let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) {
                let before = waiting.remove(0);
                left_old.remove(&before);
                left_new.remove(&at);
                pairs.push(Pair {
                    before: Some(before),
                    after: Some(at),
                });
            }
        }
    }
    let only = left_old.into_iter().map(|at| Pair {
        before: Some(at),
        after: None,
    });
    pairs.extend(only);
    let only = left_new.into_iter().map(|at| Pair {
        before: None,
        after: Some(at),
    });
    pairs.extend(only);
    pairs.sort_by_key(|pair| (pair.after.is_none(), pair.after, pair.before));
    pairs
}

fn whole_path(source: &str) -> &str {
    source
}

fn end_of_path(source: &str) -> &str {
    let mut slashes = source.rmatch_indices('/');
    match slashes.nth(1) {
        Some((at, _)) => source.get(at + 1..).unwrap_or(source),
        None => source,
    }
}

#[derive(Clone, Copy)]
enum Strength {
    Line,
    Distance,
    Function,
}

impl Strength {
    /// `None` where the start lacks what this strength compares. The parts cannot run into each other: U+0000 is in no
    /// name that matters.
    fn key(self, start: &Start, file: fn(&str) -> &str) -> Option<String> {
        let source = file(start.source.as_deref()?);
        if let Strength::Line = self {
            return Some(format!("{source}\0{}\0{}", start.line?, start.op));
        }
        let function = start.function.as_ref()?;
        // A function without a name is known by how long it is.
        let name = match &function.name {
            Some(name) => name.clone(),
            None => format!("\0{}", function.last_line.checked_sub(function.first_line)?),
        };
        let distance = match self {
            Strength::Distance => start.line?.checked_sub(function.first_line)?,
            Strength::Line | Strength::Function => 0,
        };
        Some(format!("{source}\0{name}\0{}\0{distance}", start.op))
    }
}

fn entry(
    of: &Merged<'_>,
    kind: Kind,
    twin: Option<&Merged<'_>>,
    other: Option<&Merged<'_>>,
) -> DiffStart {
    let state = of.state;
    let moved = twin.filter(|twin| {
        let place = |state: &StartState| (state.start.source.clone(), state.start.line);
        place(twin.state) != place(state)
    });
    DiffStart {
        start: state.start.clone(),
        moved_from: moved.map(|twin| twin.state.start.clone()),
        vms: kind.vms(of),
        aborts: of.aborts,
        reason: state.reason.clone(),
        reason_reason: state.reason_reason.clone(),
        other_state: Merged::name(other).to_owned(),
    }
}

/// Functions that two or more of the lost starts are or call, or that call them; those that were given up themselves
/// first, then those that most have.
fn common(lost: &[&Merged<'_>], all: &[Merged<'_>]) -> Vec<Common> {
    let mut found: BTreeMap<(Relation, String, Option<FunctionPlace>), BTreeSet<usize>> =
        BTreeMap::new();
    for (at, start) in lost.iter().enumerate() {
        for call in &start.state.calls {
            let key = (Relation::Callee, call.name.clone(), call.function.clone());
            found.entry(key).or_default().insert(at);
        }
        let own = start.state.start.function.as_ref();
        for caller in all {
            let calls = caller.state.calls.iter();
            let calls_it = calls.into_iter().any(|call| {
                call.function
                    .as_ref()
                    .zip(own)
                    .is_some_and(|(called, own)| same(called, own))
            });
            if let Some(function) = caller.state.start.function.clone().filter(|_| calls_it) {
                let name = function.name.clone().unwrap_or_default();
                let key = (Relation::Caller, name, Some(function));
                found.entry(key).or_default().insert(at);
            }
        }
    }
    let of = lost.len() as u64;
    let graph = Graph::new(all);
    let mut common: Vec<Common> = found
        .into_iter()
        .map(|((relation, name, function), starts)| {
            let starts = starts.len() as u64;
            let is_it = |start: &&Merged<'_>| {
                let own = start.state.start.function.as_ref();
                own.zip(function.as_ref())
                    .is_some_and(|(own, function)| same(own, function))
            };
            let has_it = |start: &&&Merged<'_>| {
                is_it(start) || graph.reaches(start.state, &name, function.as_ref())
            };
            let given_up_itself =
                |start: &&Merged<'_>| is_it(start) && start.state.start.op.starts_with("FUNC");
            Common {
                relation,
                reached_by: match relation {
                    Relation::Callee => lost.iter().filter(has_it).count() as u64,
                    Relation::Caller => starts,
                },
                given_up_itself: lost.iter().any(given_up_itself),
                name,
                function,
                starts,
                of,
            }
        })
        .filter(|common| common.reached_by >= COMMON_STARTS.min(of.max(1)))
        .collect();
    // A function that was given up itself explains its callers, and more than one that they merely share.
    common.sort_by_key(|common| {
        let callee = common.relation == Relation::Callee;
        let explains = common.given_up_itself && callee;
        let most = if explains {
            (common.reached_by, common.starts)
        } else {
            (common.starts, common.reached_by)
        };
        std::cmp::Reverse((explains, most, common.function.is_some()))
    });
    common.truncate(COMMON_MAX);
    common
}

/// Which function with a start calls what.
struct Graph<'a>(BTreeMap<Site<'a>, &'a StartState>);

/// A function by its place, without its name.
type Site<'a> = (&'a str, u32, u32);

fn site(function: &FunctionPlace) -> Site<'_> {
    (&function.source, function.first_line, function.last_line)
}

impl<'a> Graph<'a> {
    fn new(all: &[Merged<'a>]) -> Graph<'a> {
        let of = |start: &Merged<'a>| {
            let state: &'a StartState = start.state;
            Some((site(state.start.function.as_ref()?), state))
        };
        Graph(all.iter().filter_map(of).collect())
    }

    /// Whether the function of `from` calls this one, itself or through others.
    fn reaches(&self, from: &StartState, name: &str, function: Option<&FunctionPlace>) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            for call in &state.calls {
                let called = call.function.as_ref();
                let is_it = match (called, function) {
                    (Some(called), Some(function)) => same(called, function),
                    (None, None) => call.name == name,
                    _ => false,
                };
                if is_it {
                    return true;
                }
                if let Some(at) = called.map(site)
                    && seen.insert(at)
                    && let Some(next) = self.0.get(&at)
                {
                    open.push(next);
                }
            }
        }
        false
    }
}

fn same(one: &FunctionPlace, other: &FunctionPlace) -> bool {
    site(one) == site(other)
}

fn sum(
    document: &JitDocument,
    of: impl Fn(&super::document::VmState) -> u64,
) -> Result<u64, String> {
    Ok(document.vm.iter().map(of).fold(0, u64::saturating_add))
}

fn flushes(document: &JitDocument) -> Result<u64, String> {
    match &document.events {
        Some(events) => Ok(events.flush),
        None => Err("one look, no time in which to see a flush".to_owned()),
    }
}

fn side(
    before: &JitDocument,
    after: &JitDocument,
    of: impl Fn(&JitDocument) -> Result<u64, String>,
) -> DiffSide {
    let (before, after) = (of(before), of(after));
    DiffSide {
        before: before.as_ref().ok().copied(),
        before_reason: before.err(),
        after: after.as_ref().ok().copied(),
        after_reason: after.err(),
    }
}

fn boundaries(before: &JitDocument, after: &JitDocument) -> Vec<String> {
    let mut out = vec![
        "Two states differ also when the program had run for different times, or did other work."
            .to_owned(),
    ];
    if before.vm.len() != after.vm.len() {
        out.push(format!(
            "{} VMs before, {} after: a start counts when it holds in one of them.",
            before.vm.len(),
            after.vm.len()
        ));
    }
    for (name, document) in [("before", before), ("after", after)] {
        let torn: BTreeSet<&str> = document
            .vm
            .iter()
            .flat_map(|vm| &vm.changed_while_read)
            .map(String::as_str)
            .collect();
        if !torn.is_empty() {
            let parts: Vec<&str> = torn.into_iter().collect();
            out.push(format!(
                "The state {name} changed while it was read: {}.",
                parts.join(", ")
            ));
        }
        if document.vm.iter().any(|vm| !vm.prototypes.complete) {
            out.push(format!(
                "Not all functions were looked through {name}: starts may be missing."
            ));
        }
    }
    out
}
