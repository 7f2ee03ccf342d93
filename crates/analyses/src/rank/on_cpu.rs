//! The ranking of running threads.

use std::collections::BTreeMap;

use serde::Serialize;
use throughline_evidence::Boundary;
use throughline_profile::{Ledger, LuaContext, Profile, StackWeights};

use super::rows::{self, LineRow, LuaRow, NativeRow, Omitted, SampleCost, ShareOf, WithoutLua};
use super::{Heading, RankPlan, boundaries, heading, ledger, samples_of};

/// What the ranking does not prove.
const BOUNDARIES: [&str; 4] = [
    "A share is where samples landed, not what removing the code would gain; only a paired run, with the code and \
     without, measures that.",
    "Shares of Lua rows and of native rows have different denominators: do not subtract or divide them.",
    "Lua self includes the C code that the function called; how often a function runs per request is not counted here.",
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OnCpuDenominators {
    /// Samples looked at.
    pub samples: u64,
    /// Those with Lua frames.
    pub lua_context: u64,
    /// Those without any stack; they are in `samples` and in no row.
    pub no_stack: u64,
}

pub(super) fn rank(profile: &Profile, plan: RankPlan) -> OnCpuRank {
    let mut denominators = OnCpuDenominators::default();
    let mut by_context: BTreeMap<LuaContext, u64> = BTreeMap::new();
    let (mut all, mut with_lua) = (StackWeights::default(), StackWeights::default());
    for (sample, _, weight) in samples_of(profile, plan) {
        denominators.samples += weight;
        *by_context.entry(sample.lua).or_default() += weight;
        let Some(stack) = sample.stack else {
            denominators.no_stack += weight;
            continue;
        };
        all.add(stack, weight);
        if sample.lua == LuaContext::With {
            with_lua.add(stack, weight);
        }
    }
    denominators.lua_context = by_context.get(&LuaContext::With).copied().unwrap_or(0);

    let (samples, lua_context) = (denominators.samples, denominators.lua_context);
    let (lua, omitted_lua) = rows::lua(profile, plan, &with_lua, lua_context);
    let (lines, omitted_lines) = rows::lines(profile, plan, &with_lua, lua_context);
    let (native, omitted_native) = rows::native(profile, plan, &all, samples, |_| false);
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
