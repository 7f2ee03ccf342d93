//! What became of each start.

use std::collections::BTreeMap;

use super::super::trace::Origin;
use super::look::Reader;
use super::penalty::ABORTS_TO_GIVE_UP;
use super::{CensusTrace, Patched, Penalty, Place};

/// A start and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSummary {
    /// The start.
    pub start: Place,
    /// Root traces that start here now.
    pub compiled: u32,
    /// Aborts that can still be told: by the penalty slot, or 11 where it was given up. There may
    /// have been more, in an earlier life of the slot or before a flush.
    pub aborts: u32,
    /// Reason of the last abort that a penalty slot tells.
    pub reason: Option<u16>,
    /// Given up: the interpreter runs it from now on, unless another trace inlines it.
    pub given_up: bool,
    /// Traces of other starts with its body inside: of a function start those that inline the
    /// function; of a loop those that are left or come back within the loop.
    pub body_inlined_in: Vec<u32>,
}

/// One summary for each start, by address.
pub(super) fn summaries(
    reader: &Reader<'_>,
    traces: &[CensusTrace],
    penalties: &[Penalty],
    patched: &[Patched],
) -> Vec<StartSummary> {
    let mut starts: BTreeMap<u64, StartSummary> = BTreeMap::new();
    for entry in traces {
        if entry.trace.origin == Origin::Root {
            let summary = at(&mut starts, entry.start);
            summary.start = entry.start;
            summary.compiled += 1;
        }
    }
    for penalty in penalties {
        if let Some(start) = penalty.start {
            let summary = at(&mut starts, start);
            // An instruction can have two slots after an eviction; the newer life counts more.
            summary.aborts = summary.aborts.max(penalty.aborts);
            summary.reason = Some(penalty.reason);
        }
    }
    for patched in patched.iter().filter(|patched| !patched.switched_off) {
        let summary = at(&mut starts, patched.start);
        summary.given_up = true;
        summary.aborts = ABORTS_TO_GIVE_UP;
    }
    let mut starts: Vec<StartSummary> = starts.into_values().collect();
    let trees = trees(traces);
    for summary in &mut starts {
        summary.body_inlined_in = inlined_in(reader, traces, &trees, summary.start);
    }
    starts
}

fn at(starts: &mut BTreeMap<u64, StartSummary>, start: Place) -> &mut StartSummary {
    starts.entry(start.pc).or_insert(StartSummary {
        start,
        compiled: 0,
        aborts: 0,
        reason: None,
        given_up: false,
        body_inlined_in: Vec::new(),
    })
}

/// For each trace, in their order, the start of its tree's root.
fn trees(traces: &[CensusTrace]) -> Vec<u64> {
    let by_number: BTreeMap<u32, u64> = traces
        .iter()
        .map(|entry| (entry.trace.number, entry.start.pc))
        .collect();
    let root = |entry: &CensusTrace| {
        let root = entry.trace.root.and_then(|root| by_number.get(&root));
        root.copied().unwrap_or(entry.start.pc)
    };
    traces.iter().map(root).collect()
}

fn inlined_in(
    reader: &Reader<'_>,
    traces: &[CensusTrace],
    trees: &[u64],
    start: Place,
) -> Vec<u32> {
    let own = traces
        .iter()
        .find(|entry| entry.start.pc == start.pc && entry.trace.origin == Origin::Root);
    let instruction = own.map(|entry| entry.trace.start_instruction);
    let range = reader.loop_range(start, instruction);
    let holds = |entry: &CensusTrace, tree: u64| {
        let inside = match &range {
            // Where the loop itself ends, the code behind it may begin.
            Some(range) => {
                let from = entry.places.partition_point(|place| place < range.start());
                let places = entry.places.iter().skip(from);
                places
                    .take_while(|place| range.contains(place))
                    .any(|place| *place != start.pc)
            }
            None => {
                start.op.starts_with("FUNC")
                    && entry.inlined.binary_search(&start.bytecode_start).is_ok()
            }
        };
        inside && tree != start.pc
    };
    traces
        .iter()
        .zip(trees)
        .filter(|&(entry, &tree)| holds(entry, tree))
        .map(|(entry, _)| entry.trace.number)
        .collect()
}
