//! The ranking of running threads.

use std::collections::BTreeMap;

use serde::Serialize;
use throughline_evidence::Boundary;
use throughline_profile::{FrameKind, Ledger, LuaContext, Profile, StackId, StackWeights};

use super::rows::{
    self, LineRow, LuaRow, LuaWeights, NativeRow, Omitted, SampleCost, ShareOf, Whole, WithoutLua,
};
use super::{Heading, RankPlan, boundaries, heading, ledger, samples_of};
use crate::categories::{CategoryCounts, CategoryRow, Uncategorised};
use crate::per_request::{PerRequest, Requests};

/// What the ranking does not prove.
const BOUNDARIES: [&str; 5] = [
    "A share is where samples landed, not what removing the code would gain; only a paired run, with the code and \
     without, measures that.",
    "Shares of Lua rows and of native rows have different denominators: do not subtract or divide them.",
    "Lua self includes the C code that the function called; how often a function runs per request is not counted here.",
    "Time per request is an average over all requests of the recording: it does not say that each of them pays it.",
    "Samples show running threads only: time spent waiting is in `rank --off-cpu`.",
];

/// The ranking, as `rank --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnCpuRank {
    /// What it is about.
    #[serde(flatten)]
    pub heading: Heading,
    /// Totals.
    pub denominators: OnCpuDenominators,
    /// Which total the shares of each list are of.
    pub share_of: ShareOf,
    /// Samples without Lua frames, and why; `weight` is in samples.
    pub without_lua_context: WithoutLua,
    /// Lua functions.
    pub lua: Vec<LuaRow<SampleCost>>,
    /// Lua lines.
    pub lines: Vec<LineRow<SampleCost>>,
    /// What sort of code the samples were in; the shares are of all samples and sum to 1 with those that are uncategorised.
    pub categories: Vec<CategoryRow>,
    /// Samples without a category.
    pub uncategorised: Uncategorised,
    /// Functions of machine code.
    pub native: Vec<NativeRow<SampleCost>>,
    /// Rows that a limit left out.
    pub omitted: Omitted,
    /// Ledger of the on-CPU samples of the whole capture.
    pub ledger: Ledger,
    /// What this does not prove.
    pub boundaries: Vec<Boundary>,
}

/// Totals in samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OnCpuDenominators {
    /// Samples looked at.
    pub samples: u64,
    /// Those with Lua frames.
    pub lua_context: u64,
    /// Those without any stack; they are in `samples` and in no row.
    pub no_stack: u64,
    /// Requests beside the samples.
    #[serde(flatten)]
    pub requests: Requests,
}

pub(super) fn rank(profile: &Profile, plan: RankPlan) -> OnCpuRank {
    let mut denominators = OnCpuDenominators {
        samples: 0,
        lua_context: 0,
        no_stack: 0,
        requests: Requests::of(&profile.capture),
    };
    let mut categories = CategoryCounts::default();
    let mut by_context: BTreeMap<LuaContext, u64> = BTreeMap::new();
    let (mut all, mut with_lua, mut in_lua) =
        <(StackWeights, StackWeights, StackWeights)>::default();
    for (sample, _, weight) in samples_of(profile, plan) {
        denominators.samples += weight;
        categories.add(sample);
        *by_context.entry(sample.lua).or_default() += weight;
        let Some(stack) = sample.stack else {
            denominators.no_stack += weight;
            continue;
        };
        all.add(stack, weight);
        if sample.lua == LuaContext::With {
            with_lua.add(stack, weight);
            if is_in_vm(profile, stack) {
                in_lua.add(stack, weight);
            }
        }
    }
    denominators.lua_context = by_context.get(&LuaContext::With).copied().unwrap_or(0);

    let per_request = PerRequest::of(&profile.capture, plan.pid);
    let whole = |weight| Whole {
        weight,
        per_request: &per_request,
    };
    let (samples, lua_context) = (denominators.samples, denominators.lua_context);
    let lua_weights = LuaWeights {
        all: with_lua,
        in_lua: Some(in_lua),
    };
    let (lua, omitted_lua) = rows::lua(profile, plan, &lua_weights, &whole(lua_context));
    let (lines, omitted_lines) = rows::lines(profile, plan, &lua_weights, &whole(lua_context));
    let (native, omitted_native) = rows::native(profile, plan, &all, &whole(samples), |_| false);
    OnCpuRank {
        heading: heading(profile, plan),
        denominators,
        share_of: ShareOf {
            lua: "lua_context",
            native: "samples",
        },
        without_lua_context: WithoutLua::new(&by_context, samples),
        lua,
        lines,
        categories: categories.rows(&per_request),
        uncategorised: categories.uncategorised(),
        native,
        omitted: Omitted {
            lua: omitted_lua,
            lines: omitted_lines,
            native: omitted_native,
        },
        ledger: ledger(profile, plan.kind),
        boundaries: boundaries(&BOUNDARIES),
    }
}

/// Whether a stack ends in the VM itself: in its interpreter or in a trace.
pub(crate) fn is_in_vm(profile: &Profile, stack: StackId) -> bool {
    let innermost = profile.stacks.frames_leaf_first(stack).next();
    innermost.is_some_and(|frame| {
        let kind = profile.frames.get(frame).kind;
        kind.is_lua() || matches!(kind, FrameKind::Interpreter | FrameKind::Jit)
    })
}
