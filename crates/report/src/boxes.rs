//! Layout: which boxes of a tree are wide enough to be seen, and where they go.
//!
//! The page lays out with the same arithmetic (doubles, in this order of operations), so that both
//! make the same SVG.

use crate::function::FunctionTable;
use crate::text::visible;
use crate::view::ViewError;

/// A tree of weighted nodes; node 0 is its root.
pub(crate) trait Tree {
    fn key(&self, node: u32) -> u32;
    fn total(&self, node: u32) -> u64;
    /// Weight to the left of the node.
    fn start(&self, node: u32) -> u64;
    fn depth(&self, node: u32) -> u32;
    /// The root is its own parent.
    fn parent(&self, node: u32) -> u32;
    fn marks(&self, node: u32) -> u8;
    /// Weight to the left of where the children end, once they are made.
    fn children_end(&self, node: u32) -> u64;
    /// The leftmost child; a lazy tree makes its children now.
    fn first_child(&mut self, node: u32) -> Option<u32>;
    fn next_sibling(&self, node: u32) -> Option<u32>;
}

/// Boxes narrower than this are not drawn, and nothing below them is looked at.
const NARROWEST_PX: f64 = 0.5;

/// One box to draw.
pub(crate) struct Box {
    /// `None`: siblings too narrow to be drawn, together.
    pub node: Option<u32>,
    pub row: u32,
    /// Left edge, tenths of a pixel.
    pub left: u64,
    /// Right edge, tenths of a pixel.
    pub right: u64,
    /// Weight that the box stands for.
    pub total: u64,
}

/// The node at the end of a path of labels from the root.
pub(crate) fn find(
    tree: &mut impl Tree,
    functions: &FunctionTable,
    path: &[String],
) -> Result<u32, ViewError> {
    let mut node = 0;
    for (level, label) in path.iter().enumerate() {
        let mut child = tree.first_child(node);
        while let Some(at) = child {
            if functions.get(tree.key(at)).label == *label {
                break;
            }
            child = tree.next_sibling(at);
        }
        node = child.ok_or_else(|| ViewError::NoSuchPath {
            label: visible(label),
            level: level + 1,
        })?;
    }
    Ok(node)
}

/// Keys on the way from the root to `node`, without the root's.
pub(crate) fn keys(tree: &impl Tree, node: u32) -> Vec<u32> {
    let mut keys = Vec::with_capacity(tree.depth(node) as usize);
    let mut at = node;
    while at != 0 {
        keys.push(tree.key(at));
        at = tree.parent(at);
    }
    keys.reverse();
    keys
}

/// The visible boxes with `zoom` over the full width and its callers above it.
///
/// Siblings come by falling weight, so those too narrow to draw are neighbours: one box stands for them.
pub(crate) fn layout(tree: &mut impl Tree, zoom: u32, width: f64) -> Vec<Box> {
    let full = (width * 10.0).floor() as u64;
    let mut boxes = Vec::new();
    let mut at = zoom;
    while at != 0 {
        at = tree.parent(at);
        let (row, total) = (tree.depth(at), tree.total(at));
        boxes.push(Box {
            node: Some(at),
            row,
            left: 0,
            right: full,
            total,
        });
    }
    boxes.reverse();
    let origin = tree.start(zoom);
    let whole = tree.total(zoom) as f64;
    if whole <= 0.0 {
        return boxes;
    }
    let pixels = |weight: u64| weight as f64 / whole * width;
    let tenths = |weight: u64| (pixels(weight) * 10.0).floor() as u64;
    let mut node = zoom;
    loop {
        let wide = pixels(tree.total(node)) >= NARROWEST_PX;
        let start = tree.start(node);
        let total = if wide {
            tree.total(node)
        } else {
            tree.children_end(tree.parent(node)).saturating_sub(start)
        };
        if wide || pixels(total) >= NARROWEST_PX {
            let left = start.saturating_sub(origin);
            boxes.push(Box {
                node: wide.then_some(node),
                row: tree.depth(node),
                left: tenths(left),
                right: tenths(left.saturating_add(total)),
                total,
            });
        }
        let down = if wide { tree.first_child(node) } else { None };
        let passed = if wide { node } else { tree.parent(node) };
        match down.or_else(|| after(tree, passed, zoom)) {
            Some(next) => node = next,
            None => return boxes,
        }
    }
}

/// The node after a subtree in preorder, within `zoom`.
fn after(tree: &impl Tree, node: u32, zoom: u32) -> Option<u32> {
    let mut at = node;
    while at != zoom {
        if let Some(next) = tree.next_sibling(at) {
            return Some(next);
        }
        at = tree.parent(at);
    }
    None
}
