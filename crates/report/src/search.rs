//! Search: which functions match, at how many places, and with which share.

use regex::Regex;

use crate::function::FunctionTable;
use crate::tree::CallTree;

/// What a search found in a call tree.
pub(crate) struct Found {
    /// For each function, whether its label matches.
    pub functions: Vec<bool>,
    /// Nodes that match.
    pub places: u64,
    /// Weight of samples with a match in their stack; each counts once.
    pub weight: u64,
}

impl Found {
    /// Runs the pattern once for each distinct function, then walks the tree.
    pub fn new(pattern: &Regex, functions: &FunctionTable, tree: &CallTree) -> Self {
        let functions: Vec<bool> = functions
            .rows()
            .iter()
            .map(|row| pattern.is_match(&row.label))
            .collect();
        let mut found = Self {
            functions,
            places: 0,
            weight: 0,
        };
        let mut covered_until = 0;
        for node in 1..tree.len() {
            let at = node as usize;
            if !found.functions[tree.key[at] as usize] {
                continue;
            }
            found.places += 1;
            if node >= covered_until {
                found.weight = found.weight.saturating_add(tree.total[at]);
                covered_until = tree.end[at];
            }
        }
        found
    }
}
