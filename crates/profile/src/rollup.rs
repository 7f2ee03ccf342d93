//! Roll-ups: the cost of a function over all the stacks that it appears in.
//!
//! Weights are numbers of one kind (samples, or nanoseconds of one sort of waiting); the caller
//! makes one [`StackWeights`] for each kind and never adds two.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::{Frame, FrameTable, StackId, StackTable};

/// Weight of each stack, counted where it ends (not of the stacks that it calls).
#[derive(Clone, Debug, Default)]
pub struct StackWeights {
    by_stack: Vec<u64>,
}

impl StackWeights {
    /// Adds weight to a stack; a sum past `u64::MAX` stays there.
    pub fn add(&mut self, stack: StackId, weight: u64) {
        let at = stack.0 as usize;
        if at >= self.by_stack.len() {
            self.by_stack.resize(at + 1, 0);
        }
        self.by_stack[at] = self.by_stack[at].saturating_add(weight);
    }

    /// Weight that ends at this stack.
    #[must_use]
    pub fn get(&self, stack: StackId) -> u64 {
        self.by_stack.get(stack.0 as usize).copied().unwrap_or(0)
    }
}

/// Cost of one group of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Weight of the stacks whose innermost grouped frame is in this group.
    pub self_weight: u64,
    /// Weight of the stacks that hold the group at all; recursion counts once.
    pub inclusive: u64,
}

/// Frames gathered into groups (functions, lines); a frame may be in none.
#[derive(Clone, Debug)]
pub struct Groups<K> {
    keys: Vec<K>,
    of_frame: Vec<Option<u32>>,
}

impl<K: Clone + Eq + Hash> Groups<K> {
    /// Groups frames by a key; frames without one are looked through, also when the innermost is sought.
    pub fn by(frames: &FrameTable, mut key: impl FnMut(&Frame) -> Option<K>) -> Self {
        let mut index: FxHashMap<K, u32> = FxHashMap::default();
        let mut keys = Vec::new();
        let mut of_frame = Vec::with_capacity(frames.len());
        for (_, frame) in frames.iter() {
            of_frame.push(key(frame).map(|key| {
                *index.entry(key).or_insert_with_key(|key| {
                    keys.push(key.clone());
                    (keys.len() - 1) as u32
                })
            }));
        }
        Self { keys, of_frame }
    }

    /// Cost of every group that has any, with its key, in no particular order.
    ///
    /// Time and memory are linear in the number of stacks, whatever their depth.
    #[must_use]
    pub fn roll_up(&self, stacks: &StackTable, weights: &StackWeights) -> Vec<(K, Cost)> {
        let tree = Tree::new(stacks, weights, &self.of_frame);
        let mut costs = vec![Cost::default(); self.keys.len()];
        tree.add_self(&mut costs);
        tree.add_inclusive(&mut costs);
        self.keys
            .iter()
            .cloned()
            .zip(costs)
            .filter(|(_, cost)| cost.inclusive > 0)
            .collect()
    }
}

/// The stack tree with what a roll-up needs of each node.
struct Tree {
    /// Parent of each node; always a smaller number.
    parent: Vec<Option<usize>>,
    /// Group of each node's own frame.
    group: Vec<Option<usize>>,
    /// Weight that ends at each node.
    own: Vec<u64>,
}

impl Tree {
    fn new(stacks: &StackTable, weights: &StackWeights, of_frame: &[Option<u32>]) -> Self {
        let mut tree = Self {
            parent: Vec::with_capacity(stacks.len()),
            group: Vec::with_capacity(stacks.len()),
            own: Vec::with_capacity(stacks.len()),
        };
        for (id, parent, frame) in stacks.iter() {
            tree.parent.push(parent.map(|parent| parent.0 as usize));
            let group = of_frame.get(frame.index()).copied().flatten();
            tree.group.push(group.map(|group| group as usize));
            tree.own.push(weights.get(id));
        }
        tree
    }

    /// The innermost group at or above each node takes the node's own weight.
    fn add_self(&self, costs: &mut [Cost]) {
        let mut nearest: Vec<Option<usize>> = Vec::with_capacity(self.parent.len());
        for (node, &parent) in self.parent.iter().enumerate() {
            let group = self.group[node].or_else(|| parent.and_then(|parent| nearest[parent]));
            if let Some(group) = group {
                let cost = &mut costs[group];
                cost.self_weight = cost.self_weight.saturating_add(self.own[node]);
            }
            nearest.push(group);
        }
    }

    /// A group takes the weight of a whole subtree where it appears for the first time on the way down.
    fn add_inclusive(&self, costs: &mut [Cost]) {
        let mut subtree = self.own.clone();
        let mut first_child = vec![None; self.parent.len()];
        let mut next_sibling = vec![None; self.parent.len()];
        let mut first_root = None;
        for node in (0..self.parent.len()).rev() {
            let head = match self.parent[node] {
                Some(parent) => {
                    subtree[parent] = subtree[parent].saturating_add(subtree[node]);
                    &mut first_child[parent]
                }
                None => &mut first_root,
            };
            next_sibling[node] = head.replace(node);
        }

        let mut on_path = vec![0u32; costs.len()];
        let mut path = Vec::new();
        let mut next = first_root;
        loop {
            if let Some(node) = next {
                if let Some(group) = self.group[node] {
                    if on_path[group] == 0 {
                        let cost = &mut costs[group];
                        cost.inclusive = cost.inclusive.saturating_add(subtree[node]);
                    }
                    on_path[group] += 1;
                }
                path.push(node);
                next = first_child[node];
            } else if let Some(node) = path.pop() {
                if let Some(group) = self.group[node] {
                    on_path[group] -= 1;
                }
                next = next_sibling[node];
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameKind, Function, StringTable};

    /// Stacks written `"main;f;g"`, with their weights.
    fn costs(rows: &[(&str, u64)], skip: &str) -> Vec<(String, u64, u64)> {
        let (mut strings, mut frames) = (StringTable::default(), FrameTable::default());
        let (mut stacks, mut weights) = (StackTable::default(), StackWeights::default());
        for (stack, weight) in rows {
            let ids: Vec<_> = stack
                .split(';')
                .map(|name| frames.intern(Frame::new(FrameKind::Native, strings.intern(name))))
                .collect();
            weights.add(stacks.push_all(ids).expect("a frame"), *weight);
        }
        let groups = Groups::by(&frames, |frame| {
            (strings.get(frame.name) != skip).then(|| Function::of(frame))
        });
        let mut costs: Vec<_> = groups
            .roll_up(&stacks, &weights)
            .into_iter()
            .map(|(key, cost)| {
                let name = strings.get(key.name).to_owned();
                (name, cost.self_weight, cost.inclusive)
            })
            .collect();
        costs.sort();
        costs
    }

    fn row(name: &str, own: u64, inclusive: u64) -> (String, u64, u64) {
        (name.to_owned(), own, inclusive)
    }

    #[test]
    fn inclusive_is_the_weight_of_all_stacks_that_hold_the_function() {
        let got = costs(
            &[("main;a", 3), ("main;b", 2), ("main;b;a", 5), ("main", 1)],
            "",
        );
        assert_eq!(got, [row("a", 8, 8), row("b", 2, 7), row("main", 1, 11)]);
    }

    #[test]
    fn recursion_counts_once_direct_or_through_another() {
        let got = costs(&[("f;f;f", 4), ("f;g;f", 6), ("g;f", 1)], "");
        assert_eq!(got, [row("f", 11, 11), row("g", 0, 7)]);
    }

    #[test]
    fn frames_in_no_group_hand_their_weight_to_the_next_group_outward() {
        let got = costs(&[("main;a;plumbing", 4), ("plumbing", 9)], "plumbing");
        assert_eq!(got, [row("a", 4, 4), row("main", 0, 4)]);
    }

    #[test]
    fn a_stack_of_a_million_frames_costs_linear_time() {
        let mut strings = StringTable::default();
        let mut frames = FrameTable::default();
        let f = frames.intern(Frame::new(FrameKind::Native, strings.intern("f")));
        let g = frames.intern(Frame::new(FrameKind::Native, strings.intern("g")));
        let (mut stacks, mut weights) = (StackTable::default(), StackWeights::default());
        let mut at = None;
        for depth in 0..1_000_000 {
            let stack = stacks.push(at, if depth % 2 == 0 { f } else { g });
            weights.add(stack, 1);
            at = Some(stack);
        }
        let groups = Groups::by(&frames, |frame| Some(frame.name));
        let mut got = groups.roll_up(&stacks, &weights);
        got.sort_by_key(|(_, cost)| cost.inclusive);
        // Every stack but the outermost holds g; each function is innermost in half of them.
        assert_eq!(
            got[0].1,
            Cost {
                self_weight: 500_000,
                inclusive: 999_999
            }
        );
        assert_eq!(
            got[1].1,
            Cost {
                self_weight: 500_000,
                inclusive: 1_000_000
            }
        );
    }
}
