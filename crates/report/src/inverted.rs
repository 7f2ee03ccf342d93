//! The inverted tree: innermost frames first, callers below, made as far as it is looked at.
//!
//! A node stands for a path of functions from the innermost outwards; it holds the call tree's nodes at
//! its end with the weights that came along. Children are made when asked for, so that boxes too
//! narrow to be seen never cost anything: the whole inverse of a deep tree may be quadratic.

use rustc_hash::FxHashMap;

use crate::boxes::Tree;
use crate::tree::{CallTree, NO_KEY};

struct Node {
    key: u32,
    parent: u32,
    depth: u32,
    total: u64,
    start: u64,
    marks: u8,
    /// Range of the children once they are made.
    children: Option<(u32, u32)>,
    /// `(call tree node, weight)`; given up when the children are made.
    members: Vec<(u32, u64)>,
}

pub(crate) struct Inverted<'a> {
    tree: &'a CallTree,
    nodes: Vec<Node>,
}

impl<'a> Inverted<'a> {
    pub fn new(tree: &'a CallTree) -> Self {
        let leaves = (1..tree.len())
            .filter_map(|node| {
                let own = tree.own[node as usize];
                (own > 0).then_some((node, own))
            })
            .collect();
        let root = Node {
            key: NO_KEY,
            parent: 0,
            depth: 0,
            total: tree.total.first().copied().unwrap_or_default(),
            start: 0,
            marks: 0,
            children: None,
            members: leaves,
        };
        Self {
            tree,
            nodes: vec![root],
        }
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn expand(&mut self, node: u32) -> (u32, u32) {
        let members = std::mem::take(&mut self.nodes[node as usize].members);
        let mut groups: Vec<Node> = Vec::new();
        let mut index: FxHashMap<u32, usize> = FxHashMap::default();
        for (member, weight) in members {
            // The root's members are the innermost frames themselves; below, each node's callers come.
            let at = if node == 0 {
                member
            } else {
                self.tree.parent[member as usize]
            };
            if at == 0 {
                continue;
            }
            let key = self.tree.key[at as usize];
            let group = *index.entry(key).or_insert_with(|| {
                groups.push(Node {
                    key,
                    parent: node,
                    depth: self.nodes[node as usize].depth + 1,
                    total: 0,
                    start: 0,
                    marks: 0,
                    children: None,
                    members: Vec::new(),
                });
                groups.len() - 1
            });
            groups[group].total = groups[group].total.saturating_add(weight);
            groups[group].marks |= self.tree.marks[at as usize];
            groups[group].members.push((at, weight));
        }
        groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.total), group.key));
        let first = self.nodes.len() as u32;
        let mut start = self.node(node).start;
        for mut group in groups {
            group.start = start;
            start = start.saturating_add(group.total);
            self.nodes.push(group);
        }
        let range = (first, self.nodes.len() as u32);
        self.nodes[node as usize].children = Some(range);
        range
    }
}

impl Tree for Inverted<'_> {
    fn key(&self, node: u32) -> u32 {
        self.node(node).key
    }
    fn total(&self, node: u32) -> u64 {
        self.node(node).total
    }
    fn start(&self, node: u32) -> u64 {
        self.node(node).start
    }
    fn depth(&self, node: u32) -> u32 {
        self.node(node).depth
    }
    fn parent(&self, node: u32) -> u32 {
        self.node(node).parent
    }
    fn marks(&self, node: u32) -> u8 {
        self.node(node).marks
    }
    fn children_end(&self, node: u32) -> u64 {
        match self.node(node).children {
            Some((first, end)) if first < end => {
                let last = self.node(end - 1);
                last.start.saturating_add(last.total)
            }
            _ => self.node(node).start,
        }
    }
    fn first_child(&mut self, node: u32) -> Option<u32> {
        let (first, end) = match self.node(node).children {
            Some(range) => range,
            None => self.expand(node),
        };
        (first < end).then_some(first)
    }
    fn next_sibling(&self, node: u32) -> Option<u32> {
        let (_, end) = self.node(self.node(node).parent).children?;
        (node != 0 && node + 1 < end).then_some(node + 1)
    }
}
