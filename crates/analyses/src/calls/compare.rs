//! Did counting change what LuaJIT compiled?
//!
//! Which start becomes hot first depends on the order of requests, so two runs of one configuration do not compile
//! the same starts. A start counts against the probe only if its fate separates the runs with counting from those
//! without, every one of them; and for compiled starts also only if the runs cannot be parted in another way that
//! separates as many. A counted function that began a trace by itself lets its wrapper begin it instead: that shows as
//! compiled on one side only.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{StartFate, WRAPPER_SOURCE};

/// A start, in a way that does not depend on where the program is installed.
///
/// The last two parts of the path: labs and containers live in directories of their own. Files that agree in these are
/// taken as one.
type Key = String;

/// More runs than this are not compared: the ways to part them become too many.
const RUNS_MAX: usize = 12;

/// Runs of each side from which on a difference of compiled starts counts: three and three can be parted in ten ways.
const RUNS_FOR_COMPILED: u32 = 3;

/// The part of a `calls --json` document that is compared.
#[derive(Clone, Debug, Deserialize)]
struct Run {
    counting: bool,
    jit: Option<Jit>,
}

#[derive(Clone, Debug, Deserialize)]
struct Jit {
    starts: Vec<StartFate>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name and version of the document.
    pub schema: &'static str,
    /// Version of the program.
    pub tool: &'static str,
    /// Runs without counting, and with.
    pub runs: Sides<usize>,
    /// Whether counting changed what LuaJIT compiled.
    pub probe_changed_jit: Option<bool>,
    /// On what that rests, or why it cannot be said.
    pub probe_changed_jit_reason: String,
    /// Starts that were given up in every run of one side and in no run of the other.
    pub given_up_only: Sides<Vec<Key>>,
    /// Starts that were compiled in every run of one side and in no run of the other.
    pub compiled_only: Sides<Vec<Key>>,
    /// Starts that were given up in some runs and not in others, in another way.
    pub given_up_varies: Vec<Key>,
    /// Number of starts that were compiled in some runs and not in others, in another way.
    pub compiled_varies: usize,
    /// Starts of the probe's own wrappers that were given up. What that does to their callers shows in the other sets: a
    /// wrapper shares the fate of what it calls, so by itself it is no change.
    pub wrappers_given_up: Vec<Key>,
}

/// Something for the runs without counting, and for those with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// Without counting.
    pub without: T,
    /// With counting.
    pub with: T,
}

/// Compares documents of `calls --json`.
///
/// # Errors
/// A text that says which document cannot be compared, and why.
pub fn compare(documents: &[serde_json::Value]) -> Result<Comparison, String> {
    if !(2..=RUNS_MAX).contains(&documents.len()) {
        return Err(format!("2 to {RUNS_MAX} documents can be compared"));
    }
    let mut counting = Vec::new();
    let mut given_up: BTreeMap<Key, u32> = BTreeMap::new();
    let mut compiled: BTreeMap<Key, u32> = BTreeMap::new();
    let mut wrappers_given_up = BTreeSet::new();
    for (index, document) in documents.iter().enumerate() {
        let run = Run::deserialize(document)
            .map_err(|error| format!("document {} is not of `calls --json`: {error}", index + 1))?;
        let jit = run
            .jit
            .ok_or_else(|| format!("document {} has no compiler events", index + 1))?;
        counting.push(run.counting);
        for fate in jit.starts {
            let key = key(&fate);
            if fate.start.source.starts_with(WRAPPER_SOURCE) {
                if fate.given_up {
                    wrappers_given_up.insert(key);
                }
                continue;
            }
            let mark = |set: &mut BTreeMap<Key, u32>, holds: bool| {
                if holds {
                    *set.entry(key.clone()).or_default() |= 1 << index;
                }
            };
            mark(&mut given_up, fate.given_up);
            mark(&mut compiled, fate.compiled > 0);
        }
    }
    let with = (0..counting.len()).fold(0, |mask, index| {
        mask | (u32::from(counting.get(index) == Some(&true)) << index)
    });
    let all = (1_u32 << counting.len()) - 1;
    if with == 0 || with == all {
        return Err("all runs are of one kind: compare runs with counting to runs without".into());
    }
    let given_up_only = parted(&given_up, with, all);
    let compiled_only = parted(&compiled, with, all);
    let varies = |set: &BTreeMap<Key, u32>| -> Vec<Key> {
        let other = |&(_, &mask): &(&Key, &u32)| mask != all && mask != with && mask != all & !with;
        set.iter()
            .filter(other)
            .map(|(key, _)| key.clone())
            .collect()
    };
    let (probe_changed_jit, probe_changed_jit_reason) =
        verdict(&given_up_only, &compiled, with, all);
    Ok(Comparison {
        schema: "calls-comparison/1",
        tool: env!("CARGO_PKG_VERSION"),
        runs: Sides {
            without: (all & !with).count_ones() as usize,
            with: with.count_ones() as usize,
        },
        probe_changed_jit,
        probe_changed_jit_reason,
        given_up_only,
        compiled_only,
        given_up_varies: varies(&given_up),
        compiled_varies: varies(&compiled).len(),
        wrappers_given_up: wrappers_given_up.into_iter().collect(),
    })
}

fn verdict(
    given_up_only: &Sides<Vec<Key>>,
    compiled: &BTreeMap<Key, u32>,
    with: u32,
    all: u32,
) -> (Option<bool>, String) {
    let runs = with.count_ones().min((all & !with).count_ones());
    let given_up = given_up_only.with.len() + given_up_only.without.len();
    let separated = separated_by(compiled, with, all);
    if given_up > 0 && runs >= 2 {
        return (
            Some(true),
            format!("{given_up} starts were given up on one side only, in every run"),
        );
    }
    if given_up == 0 && separated == 0 {
        return (
            Some(false),
            "no start was given up or compiled on one side only".into(),
        );
    }
    if runs < 2 {
        return (
            None,
            format!(
                "{given_up} starts given up and {separated} compiled on one side only, and with one run of a side \
                 that may be chance: compare at least two of each"
            ),
        );
    }
    // Other ways to part the same runs into sides as large.
    let others = (1..all)
        .filter(|&mask| {
            mask.count_ones() == with.count_ones() && mask != with && mask != all & !with
        })
        .map(|mask| separated_by(compiled, mask, all));
    let best = others.max().unwrap_or(0);
    if separated > best && runs < RUNS_FOR_COMPILED {
        (
            None,
            format!(
                "no start was given up on one side only; {separated} were compiled on one side only, which takes at least \
                 {RUNS_FOR_COMPILED} runs of each to tell from chance"
            ),
        )
    } else if separated > best {
        (
            Some(true),
            format!(
                "{separated} starts were compiled on one side only, in every run; no other way to part the runs \
                 separates more than {best}"
            ),
        )
    } else {
        (
            Some(false),
            format!(
                "no start was given up on one side only; {separated} were compiled on one side only, and runs that are \
                 parted at random differ by as many ({best})"
            ),
        )
    }
}

/// How many starts hold in all runs of one side and in none of the other.
fn separated_by(set: &BTreeMap<Key, u32>, with: u32, all: u32) -> usize {
    set.values()
        .filter(|&&mask| mask == with || mask == all & !with)
        .count()
}

fn parted(set: &BTreeMap<Key, u32>, with: u32, all: u32) -> Sides<Vec<Key>> {
    let of = |wanted: u32| {
        let keys = set.iter().filter(|&(_, &mask)| mask == wanted);
        keys.map(|(key, _)| key.clone()).collect()
    };
    Sides {
        without: of(all & !with),
        with: of(with),
    }
}

fn key(fate: &StartFate) -> Key {
    let source = &fate.start.source;
    let mut parts = source.rsplitn(3, '/');
    let tail = match (parts.next(), parts.next()) {
        (Some(file), Some(directory)) => format!("{}/{file}", directory.trim_start_matches('@')),
        _ => source.clone(),
    };
    format!("{tail}:{} {}", fate.start.line, fate.start.op)
}
