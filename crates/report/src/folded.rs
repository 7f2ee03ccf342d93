//! Folded text of one view.

use std::collections::BTreeMap;

use throughline_profile::Profile;

use crate::boxes::{find, keys};
use crate::function::FunctionTable;
use crate::inverted::Inverted;
use crate::text::escape_folded;
use crate::tree::CallTree;
use crate::view::{ViewError, ViewPlan, Weighed};

/// The stacks of a view as folded text (format: the crate's page).
///
/// Only stacks through the zoomed frame are kept, and with a search only those in which it matches.
///
/// # Errors
/// [`ViewError`] when the search is no regular expression or the zoom path does not exist.
pub fn folded(profile: &Profile, plan: &ViewPlan) -> Result<String, ViewError> {
    let functions = FunctionTable::new(profile);
    let weighed = Weighed::new(profile, plan.view);
    let tree = CallTree::new(profile, &weighed, functions.no_stack(), |frame| {
        functions.of_frame(frame)
    });
    let pattern = plan.pattern()?;
    let keep: Vec<bool> = functions
        .rows()
        .iter()
        .map(|row| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(&row.label))
        })
        .collect();
    let frames: Vec<String> = functions
        .rows()
        .iter()
        .map(|row| escape_folded(&row.label))
        .collect();
    let zoom = zoom_keys(&functions, &tree, plan)?;
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for node in 1..tree.len() {
        let own = tree.own[node as usize];
        if own == 0 {
            continue;
        }
        let mut path = keys(&&tree, node);
        if plan.inverted {
            path.reverse();
        }
        if path.starts_with(&zoom) && path.iter().any(|&key| keep[key as usize]) {
            let names: Vec<&str> = path
                .iter()
                .map(|&key| frames[key as usize].as_str())
                .collect();
            let sum = sums.entry(names.join(";")).or_default();
            *sum = sum.saturating_add(own);
        }
    }
    Ok(sums
        .iter()
        .map(|(stack, weight)| format!("{stack} {weight}\n"))
        .collect())
}

/// The functions of the zoom path.
fn zoom_keys(
    functions: &FunctionTable,
    mut tree: &CallTree,
    plan: &ViewPlan,
) -> Result<Vec<u32>, ViewError> {
    if plan.inverted {
        let mut inverted = Inverted::new(tree);
        let node = find(&mut inverted, functions, &plan.zoom)?;
        Ok(keys(&inverted, node))
    } else {
        let node = find(&mut tree, functions, &plan.zoom)?;
        Ok(keys(&tree, node))
    }
}
