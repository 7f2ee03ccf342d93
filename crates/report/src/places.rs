//! Lines: how a function's weight is spread over the lines it was seen at.

use rustc_hash::FxHashMap;
use throughline_profile::Profile;

use crate::function::{FunctionId, FunctionTable};
use crate::tree::CallTree;
use crate::view::Weighed;

/// Weight of one line of one function.
pub(crate) struct LineWeight {
    pub function: FunctionId,
    pub line: u32,
    /// Weight of samples whose innermost frame is here.
    pub own: u64,
    /// Weight of samples with this line anywhere in the stack; each sample counts once.
    pub inclusive: u64,
}

/// All lines with weight, by function, heaviest first.
pub(crate) fn lines(
    profile: &Profile,
    functions: &FunctionTable,
    weighed: &Weighed,
) -> Vec<LineWeight> {
    let mut places: Vec<(FunctionId, u32)> = Vec::new();
    let mut index = FxHashMap::default();
    let mut of_frame = Vec::with_capacity(profile.frames.len());
    let mut any = false;
    for (id, frame) in profile.frames.iter() {
        any |= frame.line > 0;
        let place = (functions.of_frame(id), frame.line);
        of_frame.push(*index.entry(place).or_insert_with(|| {
            places.push(place);
            (places.len() - 1) as u32
        }));
    }
    if !any {
        return Vec::new();
    }
    let no_stack = places.len() as u32;
    places.push((functions.no_stack(), 0));
    let tree = CallTree::new(profile, weighed, no_stack, |frame| of_frame[frame.index()]);
    let sums = by_key(&tree, places.len());
    let mut lines: Vec<_> = places
        .iter()
        .zip(sums)
        .filter(|((_, line), (_, inclusive))| *line > 0 && *inclusive > 0)
        .map(|(&(function, line), (own, inclusive))| LineWeight {
            function,
            line,
            own,
            inclusive,
        })
        .collect();
    lines.sort_by_key(|row| (row.function, std::cmp::Reverse(row.inclusive), row.line));
    lines
}

/// Own and inclusive weight of every key; a key below itself is not counted again.
pub(crate) fn by_key(tree: &CallTree, keys: usize) -> Vec<(u64, u64)> {
    let mut sums = vec![(0_u64, 0_u64); keys];
    let mut covered_until = vec![0_u32; keys];
    for node in 1..tree.len() {
        let at = node as usize;
        let key = tree.key[at] as usize;
        sums[key].0 = sums[key].0.saturating_add(tree.own[at]);
        if node >= covered_until[key] {
            sums[key].1 = sums[key].1.saturating_add(tree.total[at]);
            covered_until[key] = tree.end[at];
        }
    }
    sums
}
