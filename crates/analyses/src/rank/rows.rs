//! Rows of a ranking: groups of frames with their cost, and the names people know them by.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;

use serde::Serialize;
use throughline_profile::{
    Cost, Frame, FrameKind, Function, Groups, LuaContext, Profile, StackWeights, StringId,
};

use super::{RankBy, RankPlan, share};
use crate::per_request::PerRequest;

/// Which total the shares of each list are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShareOf {
    /// Denominator of `lua` and `lines`.
    pub lua: &'static str,
    /// Denominator of `native`.
    pub native: &'static str,
}

/// Rows that a limit left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// Lua functions.
    pub lua: usize,
    /// Lua lines.
    pub lines: usize,
    /// Functions of machine code.
    pub native: usize,
}

/// Cost in samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleCost {
    /// Samples whose innermost frame of this sort is here.
    pub self_samples: u64,
    /// Their share.
    pub self_share: f64,
    /// Samples that hold it.
    pub inclusive_samples: u64,
    /// Their share.
    pub inclusive_share: f64,
    /// Self time per request in us.
    pub us_per_request: Option<f64>,
    /// Why there is none.
    pub us_per_request_reason: Option<String>,
}

/// Cost in blocked time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitCost {
    /// Blocked ns whose innermost frame of this sort is here.
    pub self_blocked_ns: u64,
    /// Their share.
    pub self_share: f64,
    /// Blocked ns of the stacks that hold it.
    pub inclusive_blocked_ns: u64,
    /// Their share.
    pub inclusive_share: f64,
}

/// Denominators of a list.
pub(super) struct Whole<'a> {
    /// Weight of which the shares are.
    pub(super) weight: u64,
    /// What a sample costs a request.
    pub(super) per_request: &'a PerRequest,
}

/// How a cost is told, given its denominators.
pub(super) trait FromCost {
    fn from_cost(cost: Cost, whole: &Whole<'_>) -> Self;
}

impl FromCost for SampleCost {
    fn from_cost(cost: Cost, whole: &Whole<'_>) -> Self {
        let (us_per_request, us_per_request_reason) = whole.per_request.cost(cost.self_weight);
        Self {
            self_samples: cost.self_weight,
            self_share: share(cost.self_weight, whole.weight),
            inclusive_samples: cost.inclusive,
            inclusive_share: share(cost.inclusive, whole.weight),
            us_per_request,
            us_per_request_reason,
        }
    }
}

impl FromCost for WaitCost {
    fn from_cost(cost: Cost, whole: &Whole<'_>) -> Self {
        Self {
            self_blocked_ns: cost.self_weight,
            self_share: share(cost.self_weight, whole.weight),
            inclusive_blocked_ns: cost.inclusive,
            inclusive_share: share(cost.inclusive, whole.weight),
        }
    }
}

/// How the self weight of a Lua row splits: its own bytecode, and the C code that it caused (table look-ups, allocation, steps of the
/// collector, system calls).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InC {
    /// Self samples in the interpreter or in JIT code.
    pub self_in_lua_samples: u64,
    /// Their share, of the same total as the self share.
    pub self_in_lua_share: f64,
    /// Self samples in C code and in the kernel.
    pub self_in_c_samples: u64,
    /// Their share, of the same total as the self share.
    pub self_in_c_share: f64,
}

impl InC {
    fn of(self_weight: u64, in_lua: u64, whole: u64) -> Self {
        let in_c = self_weight.saturating_sub(in_lua);
        Self {
            self_in_lua_samples: in_lua,
            self_in_lua_share: share(in_lua, whole),
            self_in_c_samples: in_c,
            self_in_c_share: share(in_c, whole),
        }
    }
}

/// A Lua function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LuaRow<C> {
    /// Its name.
    pub function: String,
    /// Lua, or built into LuaJIT.
    pub kind: FrameKind,
    /// Chunk name and line of definition, `@plugin.lua:578`.
    pub source: Option<String>,
    /// Why there is no source.
    pub source_reason: Option<&'static str>,
    /// What it costs.
    #[serde(flatten)]
    pub cost: C,
    /// How much of its self weight is C; only for running threads.
    #[serde(flatten)]
    pub in_c: Option<InC>,
}

/// A line of a Lua function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineRow<C> {
    /// Name of the function that the line is in.
    pub function: String,
    /// Chunk name and the line, `@plugin.lua:581`.
    pub source: Option<String>,
    /// Why there is no source.
    pub source_reason: Option<&'static str>,
    /// What it costs.
    #[serde(flatten)]
    pub cost: C,
    /// How much of its self weight is C; only for running threads.
    #[serde(flatten)]
    pub in_c: Option<InC>,
}

/// A function of machine code.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NativeRow<C> {
    /// Its name, or its place where it has none.
    pub function: String,
    /// Program, kernel, interpreter, JIT.
    pub kind: FrameKind,
    /// File name of its module.
    pub module: Option<String>,
    /// Why there is no module.
    pub module_reason: Option<&'static str>,
    /// Path of its module as the process saw it.
    pub module_path: Option<String>,
    /// Why there is no path.
    pub module_path_reason: Option<&'static str>,
    /// Why it has no real name.
    pub name_reason: Option<String>,
    /// What it costs.
    #[serde(flatten)]
    pub cost: C,
}

/// What of the total has no Lua context, and why; weights are in the unit of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithoutLua {
    /// All of it: samples, or blocked ns.
    pub weight: u64,
    /// Its share of the total.
    pub share: f64,
    /// By reason.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl WithoutLua {
    pub(super) fn new(by_context: &BTreeMap<LuaContext, u64>, whole: u64) -> Self {
        let reasons: BTreeMap<_, _> = by_context
            .iter()
            .filter(|&(&lua, &weight)| lua != LuaContext::With && weight > 0)
            .map(|(lua, &weight)| (lua.as_str(), weight))
            .collect();
        let weight = reasons.values().fold(0u64, |sum, &w| sum.saturating_add(w));
        Self {
            weight,
            share: share(weight, whole),
            reasons,
        }
    }
}

/// Weights of the samples with Lua context; `in_lua` holds those that were in the VM itself, where that is looked at.
pub(super) struct LuaWeights {
    pub(super) all: StackWeights,
    pub(super) in_lua: Option<StackWeights>,
}

impl LuaWeights {
    /// Self weight of each group in the VM itself.
    fn self_in_lua<K: Clone + Eq + Hash + Ord>(
        &self,
        profile: &Profile,
        groups: &Groups<K>,
    ) -> Option<BTreeMap<K, u64>> {
        let rolled = groups.roll_up(&profile.stacks, self.in_lua.as_ref()?);
        Some(
            rolled
                .into_iter()
                .map(|(key, cost)| (key, cost.self_weight))
                .collect(),
        )
    }
}

fn in_c<K: Ord>(
    in_lua: Option<&BTreeMap<K, u64>>,
    key: &K,
    cost: Cost,
    whole: &Whole<'_>,
) -> Option<InC> {
    let in_lua = in_lua?.get(key).copied().unwrap_or(0);
    Some(InC::of(cost.self_weight, in_lua, whole.weight))
}

/// Lua functions, by the samples with Lua context.
pub(super) fn lua<C: FromCost>(
    profile: &Profile,
    plan: RankPlan,
    weights: &LuaWeights,
    whole: &Whole<'_>,
) -> (Vec<LuaRow<C>>, usize) {
    let groups = Groups::by(&profile.frames, |frame| {
        frame.kind.is_lua().then(|| Function::of(frame))
    });
    let in_lua = weights.self_in_lua(profile, &groups);
    let rows = groups
        .roll_up(&profile.stacks, &weights.all)
        .into_iter()
        .map(|(function, cost)| {
            let (source, source_reason) = place(profile, function.source, function.first_line);
            let row = LuaRow {
                function: profile.strings.get(function.name).to_owned(),
                kind: function.kind,
                source,
                source_reason,
                cost: C::from_cost(cost, whole),
                in_c: in_c(in_lua.as_ref(), &function, cost, whole),
            };
            (cost, row)
        })
        .collect();
    top(rows, plan, |row| (&row.function, &row.source))
}

/// Lua lines, by the samples with Lua context.
pub(super) fn lines<C: FromCost>(
    profile: &Profile,
    plan: RankPlan,
    weights: &LuaWeights,
    whole: &Whole<'_>,
) -> (Vec<LineRow<C>>, usize) {
    let groups = Groups::by(&profile.frames, |frame| {
        (frame.kind == FrameKind::Lua).then(|| (Function::of(frame), frame.line))
    });
    let in_lua = weights.self_in_lua(profile, &groups);
    let rows = groups
        .roll_up(&profile.stacks, &weights.all)
        .into_iter()
        .map(|((function, line), cost)| {
            let (source, source_reason) = place(profile, function.source, line);
            let row = LineRow {
                function: profile.strings.get(function.name).to_owned(),
                source,
                source_reason,
                cost: C::from_cost(cost, whole),
                in_c: in_c(in_lua.as_ref(), &(function, line), cost, whole),
            };
            (cost, row)
        })
        .collect();
    top(rows, plan, |row| (&row.function, &row.source))
}

/// Functions of machine code; frames that `is_plumbing` accepts are looked through.
pub(super) fn native<C: FromCost>(
    profile: &Profile,
    plan: RankPlan,
    weights: &StackWeights,
    whole: &Whole<'_>,
    is_plumbing: impl Fn(&Frame) -> bool,
) -> (Vec<NativeRow<C>>, usize) {
    let mut name_reasons: BTreeMap<Function, StringId> = BTreeMap::new();
    let groups = Groups::by(&profile.frames, |frame| {
        if frame.kind.is_lua() || frame.kind == FrameKind::Marker || is_plumbing(frame) {
            return None;
        }
        let function = Function::of(frame);
        if let Some(reason) = frame.name_reason {
            name_reasons.entry(function).or_insert(reason);
        }
        Some(function)
    });
    let rows = groups
        .roll_up(&profile.stacks, weights)
        .into_iter()
        .map(|(function, cost)| {
            let path = function
                .module
                .map(|module| profile.strings.get(profile.modules.get(module).path));
            let row = NativeRow {
                function: profile.strings.get(function.name).to_owned(),
                kind: function.kind,
                module: path.map(|path| file_name(path).to_owned()),
                module_reason: path.is_none().then_some("not mapped from a file"),
                module_path: path.map(str::to_owned),
                module_path_reason: path.is_none().then_some("not mapped from a file"),
                name_reason: name_reasons
                    .get(&function)
                    .map(|&reason| profile.strings.get(reason).to_owned()),
                cost: C::from_cost(cost, whole),
            };
            (cost, row)
        })
        .collect();
    top(rows, plan, |row| (&row.function, &row.module_path))
}

/// Chunk name and line, or why there is none.
pub(crate) fn place(
    profile: &Profile,
    source: Option<StringId>,
    line: u32,
) -> (Option<String>, Option<&'static str>) {
    match source.map(|source| profile.strings.get(source)) {
        None => (
            None,
            Some("no Lua source: built into LuaJIT, or not readable"),
        ),
        Some(source) if line == 0 => (Some(format!("{source}:?")), None),
        Some(source) => (Some(format!("{source}:{line}")), None),
    }
}

/// The last part of a path that has one.
fn file_name(path: &str) -> &str {
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => path,
    }
}

/// The first rows in the plan's order, and how many were left out. Ties are broken by name: the same profile
/// gives the same report.
fn top<R>(
    mut rows: Vec<(Cost, R)>,
    plan: RankPlan,
    names: impl Fn(&R) -> (&String, &Option<String>),
) -> (Vec<R>, usize) {
    let weights = |cost: &Cost| match plan.by {
        RankBy::SelfWeight => (Reverse(cost.self_weight), Reverse(cost.inclusive)),
        RankBy::Inclusive => (Reverse(cost.inclusive), Reverse(cost.self_weight)),
    };
    rows.sort_by(|(a, row_a), (b, row_b)| {
        weights(a)
            .cmp(&weights(b))
            .then_with(|| names(row_a).cmp(&names(row_b)))
    });
    let kept = plan.limit.unwrap_or(usize::MAX).min(rows.len());
    let omitted = rows.len() - kept;
    (
        rows.into_iter().take(kept).map(|(_, row)| row).collect(),
        omitted,
    )
}
