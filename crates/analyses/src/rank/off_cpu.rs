//! The ranking of waiting threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use throughline_evidence::Boundary;
use throughline_profile::{
    Frame, FrameId, FrameKind, Function, Ledger, LuaContext, Measure, OffCpu, Profile, Sample,
    SampleKind, StackId, StackWeights, ThreadId,
};

use super::rows::{
    self, LineRow, LuaRow, LuaWeights, NativeRow, Omitted, ShareOf, WaitCost, Whole, WithoutLua,
};
use super::{Heading, RankPlan, boundaries, heading, ledger, samples_of, share};
use crate::per_request::PerRequest;

/// What the ranking does not prove.
const BOUNDARIES: [&str; 4] = [
    "Blocked time is not lost throughput: waits of several threads overlap, and removing one may uncover another; only \
     a paired run, with the wait and without, measures the gain.",
    "A wait lasts from leaving the core until running again: it includes the time in the run queue after the wakeup.",
    "The waker ran when the wait ended; that it is the cause of the wait is inferred, not measured.",
    "Waits outside the capture's limits of length were not kept; their number is not in these totals.",
];

/// Kernel functions that carry out a switch and say nothing of what is waited for, without compiler suffixes.
///
/// Source: the kernel's `kernel/sched/core.c`; its sleeping functions with a timeout are in [`PLUMBING_PREFIXES`].
const PLUMBING: [&str; 12] = [
    "__schedule",
    "schedule",
    "schedule_preempt_disabled",
    "schedule_rtlock",
    "schedule_idle",
    "io_schedule",
    "io_schedule_timeout",
    "io_schedule_prepare",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "__cond_resched",
];

/// Families of such functions (`schedule_timeout_interruptible`, `schedule_hrtimeout_range_clock`), and the hooks by
/// which the switch itself is observed.
const PLUMBING_PREFIXES: [&str; 7] = [
    "schedule_timeout",
    "schedule_hrtimeout",
    "__traceiter_",
    "__bpf_trace_",
    "bpf_trace_run",
    "bpf_trampoline_",
    "bpf_prog_",
];

/// Most wakers that a row names.
const WAKERS: usize = 3;

/// The ranking, as `rank --off-cpu --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffCpuRank {
    /// What it is about.
    #[serde(flatten)]
    pub heading: Heading,
    /// Shortest wait that was kept, in ns.
    pub min_block_ns: u64,
    /// Longest wait that was kept, in ns.
    pub max_block_ns: u64,
    /// Totals.
    pub denominators: OffCpuDenominators,
    /// Which total the shares of each list are of.
    pub share_of: ShareOf,
    /// Blocked time without Lua frames, and why; `weight` is in ns.
    pub without_lua_context: WithoutLua,
    /// Waits for a result, by what is waited in and the Lua line that asked for it; shares of `blocked_ns`.
    pub waits: Vec<WaitRow>,
    /// Waits for work; shares of `idle_ns`.
    pub idle: Vec<WaitRow>,
    /// Lua functions, by blocked time.
    pub lua: Vec<LuaRow<WaitCost>>,
    /// Lua lines, by blocked time.
    pub lines: Vec<LineRow<WaitCost>>,
    /// Functions of machine code, by blocked time; the scheduler's own are looked through.
    pub native: Vec<NativeRow<WaitCost>>,
    /// Rows that a limit left out.
    pub omitted: Omitted,
    /// Rows of `waits` that a limit left out.
    pub omitted_waits: usize,
    /// Rows of `idle` that a limit left out.
    pub omitted_idle: usize,
    /// Ledger of the off-CPU samples of the whole capture.
    pub ledger: Ledger,
    /// What this does not prove.
    pub boundaries: Vec<Boundary>,
}

/// Totals of each sort of waiting. They have different meanings and are never added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OffCpuDenominators {
    /// Waiting for a result, in ns.
    pub blocked_ns: u64,
    /// Number of such waits.
    pub blocked_waits: u64,
    /// The part of `blocked_ns` after the wakeup, in the run queue, where the wakeup was seen.
    pub blocked_runnable_ns: u64,
    /// Waits whose wakeup was not seen.
    pub blocked_waits_without_wakeup: u64,
    /// The part of `blocked_ns` with Lua frames.
    pub lua_context_ns: u64,
    /// Waiting for work, in ns.
    pub idle_ns: u64,
    /// Number of such waits.
    pub idle_waits: u64,
    /// Runnable while another thread had the core, in ns.
    pub preempted_ns: u64,
    /// Number of such stretches.
    pub preempted_stretches: u64,
}

impl OffCpuDenominators {
    fn add(&mut self, measure: Measure, off: &OffCpu, lua: LuaContext) {
        let (ns, count) = match measure {
            Measure::OnCpu => return,
            Measure::Blocked => (&mut self.blocked_ns, &mut self.blocked_waits),
            Measure::Idle => (&mut self.idle_ns, &mut self.idle_waits),
            Measure::Preempted => (&mut self.preempted_ns, &mut self.preempted_stretches),
        };
        add(ns, off.duration.0);
        *count += 1;
        if measure == Measure::Blocked {
            match off.runnable {
                Some(runnable) => add(&mut self.blocked_runnable_ns, runnable.0),
                None => self.blocked_waits_without_wakeup += 1,
            }
            if lua == LuaContext::With {
                add(&mut self.lua_context_ns, off.duration.0);
            }
        }
    }
}

/// A file from elsewhere may claim any duration.
fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

/// Waits in one kernel function, asked for by one Lua line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    /// The kernel function that waits: the innermost that is not the scheduler's own.
    pub wait_function: Option<String>,
    /// Why there is none.
    pub wait_function_reason: Option<&'static str>,
    /// The function of machine code outside the kernel through which most of this time was entered.
    pub native_function: Option<String>,
    /// Why there is none.
    pub native_function_reason: Option<&'static str>,
    /// The innermost Lua function.
    pub lua_function: Option<String>,
    /// Its chunk and the line that asked, `@log.lua:31`.
    pub lua_line: Option<String>,
    /// Why there is no Lua line.
    pub lua_line_reason: Option<&'static str>,
    /// What it amounts to.
    #[serde(flatten)]
    pub waits: Waits,
    /// Threads that ended most of these waits.
    pub wakers: Vec<WakerRow>,
    /// Time of the waits whose waker was not seen, in ns.
    pub waker_unseen_ns: u64,
}

/// Amount of some waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// All of it, in ns.
    pub total_ns: u64,
    /// Its share of the list's total.
    pub share: f64,
    /// Number of waits.
    pub count: u64,
    /// The longest one, in ns.
    pub longest_ns: u64,
}

/// A thread that ended waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakerRow {
    /// Its name.
    pub comm: String,
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Time of the waits that it ended, in ns.
    pub woke_ns: u64,
}

pub(super) fn rank(profile: &Profile, plan: RankPlan) -> OffCpuRank {
    let places = Places::of(profile);
    let mut denominators = OffCpuDenominators::default();
    let mut by_context: BTreeMap<LuaContext, u64> = BTreeMap::new();
    let (mut all, mut with_lua) = (StackWeights::default(), StackWeights::default());
    let (mut waits, mut idle) = (WaitTable::default(), WaitTable::default());
    for (sample, measure, weight) in samples_of(profile, plan) {
        let SampleKind::OffCpu(off) = sample.kind else {
            continue;
        };
        denominators.add(measure, &off, sample.lua);
        match measure {
            Measure::Blocked => waits.add(profile, &places, sample, &off),
            Measure::Idle => idle.add(profile, &places, sample, &off),
            Measure::OnCpu | Measure::Preempted => {}
        }
        if measure != Measure::Blocked {
            continue;
        }
        add(by_context.entry(sample.lua).or_default(), weight);
        if let Some(stack) = sample.stack {
            all.add(stack, weight);
            if sample.lua == LuaContext::With {
                with_lua.add(stack, weight);
            }
        }
    }

    let (blocked, lua_context) = (denominators.blocked_ns, denominators.lua_context_ns);
    let per_request = PerRequest::none("waits are not counted per request");
    let whole = |weight| Whole {
        weight,
        per_request: &per_request,
    };
    let lua_weights = LuaWeights {
        all: with_lua,
        in_lua: None,
    };
    let (lua, omitted_lua) = rows::lua(profile, plan, &lua_weights, &whole(lua_context));
    let (lines, omitted_lines) = rows::lines(profile, plan, &lua_weights, &whole(lua_context));
    let (native, omitted_native) = rows::native(profile, plan, &all, &whole(blocked), |frame| {
        is_plumbing(profile, frame)
    });
    let (waits, omitted_waits) = waits.rows(profile, plan, blocked);
    let (idle, omitted_idle) = idle.rows(profile, plan, denominators.idle_ns);
    OffCpuRank {
        heading: heading(profile, plan),
        min_block_ns: profile.capture.min_block_ns,
        max_block_ns: profile.capture.max_block_ns,
        denominators,
        share_of: ShareOf {
            lua: "lua_context_ns",
            native: "blocked_ns",
        },
        without_lua_context: WithoutLua::new(&by_context, blocked),
        waits,
        idle,
        lua,
        lines,
        native,
        omitted: Omitted {
            lua: omitted_lua,
            lines: omitted_lines,
            native: omitted_native,
        },
        omitted_waits,
        omitted_idle,
        ledger: ledger(profile, plan.kind),
        boundaries: boundaries(&BOUNDARIES),
    }
}

/// Whether a frame belongs to the switch itself.
fn is_plumbing(profile: &Profile, frame: &Frame) -> bool {
    if frame.kind != FrameKind::Kernel {
        return false;
    }
    let name = profile.strings.get(frame.name);
    // The compiler's copies are called `schedule.isra.0` and the like.
    let name = name.split('.').next().unwrap_or(name);
    PLUMBING.contains(&name)
        || PLUMBING_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Where each stack waits, found once for all stacks from their parents: linear, whatever the depth.
struct Places {
    of_stack: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// Whether the innermost frame is in the kernel.
    in_kernel: bool,
    /// The innermost kernel frame that is not plumbing, when only kernel frames are further in.
    wait: Option<FrameId>,
    /// The innermost frame of machine code outside the kernel.
    native: Option<FrameId>,
    /// The innermost Lua frame that has lines.
    lua: Option<FrameId>,
}

impl Places {
    fn of(profile: &Profile) -> Self {
        let mut of_stack: Vec<Place> = Vec::with_capacity(profile.stacks.len());
        for (_, parent, frame_id) in profile.stacks.iter() {
            let outer = parent
                .and_then(|parent| of_stack.get(parent.0 as usize))
                .copied()
                .unwrap_or_default();
            let frame = profile.frames.get(frame_id);
            of_stack.push(match frame.kind {
                FrameKind::Kernel => Place {
                    in_kernel: true,
                    wait: if is_plumbing(profile, frame) {
                        outer.wait
                    } else {
                        Some(frame_id)
                    },
                    ..outer
                },
                FrameKind::Marker => outer,
                FrameKind::Lua => Place {
                    in_kernel: false,
                    wait: None,
                    lua: Some(frame_id),
                    ..outer
                },
                FrameKind::LuaBuiltin => Place {
                    in_kernel: false,
                    wait: None,
                    ..outer
                },
                FrameKind::Native
                | FrameKind::Interpreter
                | FrameKind::Jit
                | FrameKind::OtherJit => Place {
                    in_kernel: false,
                    wait: None,
                    native: Some(frame_id),
                    ..outer
                },
            });
        }
        Self { of_stack }
    }

    fn get(&self, stack: Option<StackId>) -> Option<Place> {
        self.of_stack.get(stack?.0 as usize).copied()
    }
}

/// What makes waits one row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WaitKey {
    wait: Result<Function, &'static str>,
    lua: Result<(Function, u32), &'static str>,
}

#[derive(Default)]
struct WaitSums {
    waits: Waits,
    native: BTreeMap<Function, u64>,
    wakers: BTreeMap<ThreadId, u64>,
    waker_unseen_ns: u64,
}

#[derive(Default)]
struct WaitTable {
    rows: BTreeMap<WaitKey, WaitSums>,
}

impl WaitTable {
    fn add(&mut self, profile: &Profile, places: &Places, sample: &Sample, off: &OffCpu) {
        let place = places.get(sample.stack);
        let key = WaitKey {
            wait: match place {
                None => Err("no stack"),
                Some(Place {
                    wait: Some(frame), ..
                }) => Ok(Function::of(profile.frames.get(frame))),
                Some(Place {
                    in_kernel: true, ..
                }) => Err("only the scheduler's own frames were seen"),
                Some(_) => Err("no kernel stack"),
            },
            lua: match place.and_then(|place| place.lua) {
                Some(frame) => {
                    let frame = profile.frames.get(frame);
                    Ok((Function::of(frame), frame.line))
                }
                None if sample.lua == LuaContext::With => Err("no Lua function with lines"),
                None => Err(sample.lua.as_str()),
            },
        };
        let sums = self.rows.entry(key).or_default();
        let ns = off.duration.0;
        add(&mut sums.waits.total_ns, ns);
        sums.waits.count += 1;
        sums.waits.longest_ns = sums.waits.longest_ns.max(ns);
        if let Some(frame) = place.and_then(|place| place.native) {
            let function = Function::of(profile.frames.get(frame));
            add(sums.native.entry(function).or_default(), ns);
        }
        match off.waker {
            Some(waker) => add(sums.wakers.entry(waker).or_default(), ns),
            None => add(&mut sums.waker_unseen_ns, ns),
        }
    }

    /// Rows by total time, and how many a limit left out.
    fn rows(self, profile: &Profile, plan: RankPlan, whole: u64) -> (Vec<WaitRow>, usize) {
        let mut rows: Vec<_> = self.rows.into_iter().collect();
        // Stable: ties keep the order of the keys, which follows from the profile alone.
        rows.sort_by_key(|(_, sums)| Reverse(sums.waits.total_ns));
        let kept = plan.limit.unwrap_or(usize::MAX).min(rows.len());
        let omitted = rows.len() - kept;
        let rows = rows
            .into_iter()
            .take(kept)
            .map(|(key, sums)| wait_row(profile, key, sums, whole))
            .collect();
        (rows, omitted)
    }
}

fn wait_row(profile: &Profile, key: WaitKey, mut sums: WaitSums, whole: u64) -> WaitRow {
    let name = |function: Function| profile.strings.get(function.name).to_owned();
    sums.waits.share = share(sums.waits.total_ns, whole);
    let native = sums.native.iter().max_by_key(|&(_, &ns)| ns);
    let (lua_line, lua_line_reason) = match key.lua {
        Ok((function, line)) => rows::place(profile, function.source, line),
        Err(reason) => (None, Some(reason)),
    };
    let mut wakers: Vec<_> = sums.wakers.into_iter().collect();
    wakers.sort_by_key(|&(_, ns)| Reverse(ns));
    WaitRow {
        wait_function: key.wait.ok().map(name),
        wait_function_reason: key.wait.err(),
        native_function: native.map(|(&function, _)| name(function)),
        native_function_reason: native
            .is_none()
            .then_some("no frame of machine code outside the kernel"),
        lua_function: key.lua.ok().map(|(function, _)| name(function)),
        lua_line,
        lua_line_reason,
        waits: sums.waits,
        wakers: wakers
            .into_iter()
            .take(WAKERS)
            .map(|(id, woke_ns)| {
                let thread = profile.threads.get(id);
                WakerRow {
                    comm: profile.strings.get(thread.comm).to_owned(),
                    pid: thread.pid,
                    tid: thread.tid,
                    woke_ns,
                }
            })
            .collect(),
        waker_unseen_ns: sums.waker_unseen_ns,
    }
}
