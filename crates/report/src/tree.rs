//! The call tree: stacks merged by function, in preorder, without recursion.
//!
//! Node 0 is the root that holds everything. A node's subtree is the range `node..end(node)`, so a
//! walk may skip it in one step; stacks of 20,000 frames cost no call stack.

use rustc_hash::FxHashMap;
use throughline_profile::{FrameId, Profile};

use crate::boxes::Tree;
use crate::view::Weighed;

/// A frame of this node was inlined by the compiler.
pub(crate) const INLINED: u8 = 1;
/// A frame of this node was inferred by a rule that can be wrong.
pub(crate) const GUESSED: u8 = 2;

/// Key of the root, which is no function.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// Nodes in preorder, one column a property.
#[derive(Default)]
pub(crate) struct CallTree {
    pub key: Vec<u32>,
    pub parent: Vec<u32>,
    /// One past the last node of the subtree.
    pub end: Vec<u32>,
    pub depth: Vec<u32>,
    /// Weight of samples that end here.
    pub own: Vec<u64>,
    /// Weight of samples that pass through or end here.
    pub total: Vec<u64>,
    /// Weight to the left of the node.
    pub start: Vec<u64>,
    pub marks: Vec<u8>,
}

impl CallTree {
    /// Merges the stacks that have weight by `key_of` their frames; siblings by falling weight.
    pub fn new(
        profile: &Profile,
        weighed: &Weighed,
        no_stack: u32,
        key_of: impl Fn(FrameId) -> u32,
    ) -> Self {
        let mut merged = Merged::new();
        merged.add_stacks(profile, weighed, key_of);
        if weighed.without_stack > 0 {
            let node = merged.child(0, no_stack);
            let own = &mut merged.own[node as usize];
            *own = own.saturating_add(weighed.without_stack);
        }
        merged.into_preorder()
    }

    pub fn len(&self) -> u32 {
        self.key.len() as u32
    }

    fn push(&mut self, merged: &Merged, node: u32, total: u64, place: Place) -> u32 {
        let id = self.len();
        self.key.push(merged.key[node as usize]);
        self.parent.push(place.parent);
        self.end.push(id + 1);
        self.depth.push(place.depth);
        self.own.push(merged.own[node as usize]);
        self.total.push(total);
        self.start.push(place.start);
        self.marks.push(merged.marks[node as usize]);
        id
    }
}

/// Where a node goes in preorder.
#[derive(Clone, Copy)]
struct Place {
    parent: u32,
    depth: u32,
    start: u64,
}

impl Tree for &CallTree {
    fn key(&self, node: u32) -> u32 {
        self.key[node as usize]
    }
    fn total(&self, node: u32) -> u64 {
        self.total[node as usize]
    }
    fn start(&self, node: u32) -> u64 {
        self.start[node as usize]
    }
    fn depth(&self, node: u32) -> u32 {
        self.depth[node as usize]
    }
    fn parent(&self, node: u32) -> u32 {
        self.parent[node as usize]
    }
    fn marks(&self, node: u32) -> u8 {
        self.marks[node as usize]
    }
    fn children_end(&self, node: u32) -> u64 {
        let at = node as usize;
        self.start[at]
            .saturating_add(self.total[at])
            .saturating_sub(self.own[at])
    }
    fn first_child(&mut self, node: u32) -> Option<u32> {
        (self.end[node as usize] > node + 1).then_some(node + 1)
    }
    fn next_sibling(&self, node: u32) -> Option<u32> {
        let next = self.end[node as usize];
        (node != 0 && next < self.end[self.parent[node as usize] as usize]).then_some(next)
    }
}

/// Stacks merged by key, in the order in which they were met; parents before children.
struct Merged {
    key: Vec<u32>,
    parent: Vec<u32>,
    own: Vec<u64>,
    marks: Vec<u8>,
    index: FxHashMap<(u32, u32), u32>,
}

impl Merged {
    fn new() -> Self {
        Self {
            key: vec![NO_KEY],
            parent: vec![0],
            own: vec![0],
            marks: vec![0],
            index: FxHashMap::default(),
        }
    }

    fn child(&mut self, parent: u32, key: u32) -> u32 {
        if let Some(&node) = self.index.get(&(parent, key)) {
            return node;
        }
        let node = self.key.len() as u32;
        self.key.push(key);
        self.parent.push(parent);
        self.own.push(0);
        self.marks.push(0);
        self.index.insert((parent, key), node);
        node
    }

    fn add_stacks(
        &mut self,
        profile: &Profile,
        weighed: &Weighed,
        key_of: impl Fn(FrameId) -> u32,
    ) {
        let mut totals = weighed.by_stack.clone();
        let parents: Vec<_> = profile.stacks.iter().map(|(_, parent, _)| parent).collect();
        for (at, parent) in parents.iter().enumerate().rev() {
            if let Some(parent) = parent {
                totals[parent.0 as usize] = totals[parent.0 as usize].saturating_add(totals[at]);
            }
        }
        let mut nodes = vec![0_u32; totals.len()];
        for (id, parent, frame_id) in profile.stacks.iter() {
            let at = id.0 as usize;
            if totals[at] == 0 {
                continue;
            }
            let above = parent.map_or(0, |parent| nodes[parent.0 as usize]);
            let node = self.child(above, key_of(frame_id));
            nodes[at] = node;
            self.own[node as usize] = self.own[node as usize].saturating_add(weighed.by_stack[at]);
            let frame = profile.frames.get(frame_id);
            self.marks[node as usize] |=
                if frame.inlined { INLINED } else { 0 } | if frame.guessed { GUESSED } else { 0 };
        }
    }

    fn totals(&self) -> Vec<u64> {
        let mut totals = self.own.clone();
        for node in (1..totals.len()).rev() {
            let parent = self.parent[node] as usize;
            totals[parent] = totals[parent].saturating_add(totals[node]);
        }
        totals
    }

    /// Children of every node, side by side: those of `node` are `list[from[node]..from[node + 1]]`.
    fn children(&self, totals: &[u64]) -> (Vec<u32>, Vec<u32>) {
        let count = self.key.len();
        let mut from = vec![0_u32; count + 1];
        for &parent in &self.parent[1..] {
            from[parent as usize + 1] += 1;
        }
        for at in 1..=count {
            from[at] += from[at - 1];
        }
        let mut next = from.clone();
        let mut list = vec![0_u32; count - 1];
        for node in 1..count as u32 {
            let slot = &mut next[self.parent[node as usize] as usize];
            list[*slot as usize] = node;
            *slot += 1;
        }
        for node in 0..count {
            list[from[node] as usize..from[node + 1] as usize].sort_unstable_by_key(|&child| {
                (
                    std::cmp::Reverse(totals[child as usize]),
                    self.key[child as usize],
                )
            });
        }
        (from, list)
    }

    fn into_preorder(self) -> CallTree {
        let totals = self.totals();
        let (from, list) = self.children(&totals);
        let mut tree = CallTree::default();
        let mut pending = vec![(
            0_u32,
            Place {
                parent: 0,
                depth: 0,
                start: 0,
            },
        )];
        while let Some((node, place)) = pending.pop() {
            let id = tree.push(&self, node, totals[node as usize], place);
            let children = &list[from[node as usize] as usize..from[node as usize + 1] as usize];
            let end = place.start.saturating_add(totals[node as usize]);
            let mut start = end.saturating_sub(self.own[node as usize]);
            for &child in children.iter().rev() {
                start = start.saturating_sub(totals[child as usize]);
                pending.push((
                    child,
                    Place {
                        parent: id,
                        depth: place.depth + 1,
                        start,
                    },
                ));
            }
        }
        for node in (1..tree.len()).rev() {
            let parent = tree.parent[node as usize] as usize;
            tree.end[parent] = tree.end[parent].max(tree.end[node as usize]);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use throughline_profile::{Frame, FrameKind, Sample, Thread};
    use throughline_units::Nanos;

    use super::*;
    use crate::view::View;

    #[test]
    fn a_stack_of_20000_frames_becomes_a_tree_without_recursion() {
        let mut profile = Profile::default();
        let name = profile.strings.intern("f");
        let frame = profile.frames.intern(Frame::new(FrameKind::Native, name));
        let stack = profile.stacks.push_all(std::iter::repeat_n(frame, 20_000));
        let thread = profile.threads.intern(Thread {
            pid: 1,
            tid: 1,
            comm: name,
            start_ns: None,
        });
        profile
            .samples
            .push(Sample::on_cpu(Nanos(0), thread, stack));
        let weighed = Weighed::new(&profile, View::OnCpu);
        let tree = CallTree::new(&profile, &weighed, 1, |frame| frame.0);
        assert_eq!(tree.len(), 20_001);
        assert_eq!(tree.depth.last(), Some(&20_000));
        assert!(tree.total.iter().all(|&total| total == 1));
        assert!(tree.end.iter().all(|&end| end == 20_001));
    }
}
