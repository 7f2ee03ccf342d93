//! Stacks as a tree: a stack is a frame called from another stack.

use rustc_hash::FxHashMap;

use crate::FrameId;

/// Handle of a stack; equal stacks have equal handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// Distinct stacks. A parent's handle is always smaller than its children's.
#[derive(Clone, Debug, Default)]
pub struct StackTable {
    rows: Vec<(Option<StackId>, FrameId)>,
    index: FxHashMap<(Option<StackId>, FrameId), StackId>,
}

impl StackTable {
    /// The stack made by calling `frame` from `parent` (`None`: the frame is the root).
    pub fn push(&mut self, parent: Option<StackId>, frame: FrameId) -> StackId {
        if let Some(&id) = self.index.get(&(parent, frame)) {
            return id;
        }
        let id = StackId(self.rows.len() as u32);
        self.rows.push((parent, frame));
        self.index.insert((parent, frame), id);
        id
    }

    /// The stack with these frames, root first; `None` for no frames.
    pub fn push_all(&mut self, root_first: impl IntoIterator<Item = FrameId>) -> Option<StackId> {
        root_first
            .into_iter()
            .fold(None, |parent, frame| Some(self.push(parent, frame)))
    }

    /// The stack that called this one's top frame.
    #[must_use]
    pub fn parent(&self, id: StackId) -> Option<StackId> {
        self.rows[id.0 as usize].0
    }

    /// The top (innermost) frame.
    #[must_use]
    pub fn top(&self, id: StackId) -> FrameId {
        self.rows[id.0 as usize].1
    }

    /// Frames from the innermost to the root.
    pub fn frames_leaf_first(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(Some(id), |&at| self.parent(at)).map(|at| self.top(at))
    }

    /// Number of frames.
    #[must_use]
    pub fn depth(&self, id: StackId) -> usize {
        self.frames_leaf_first(id).count()
    }

    /// Rows `(handle, parent, frame)`, parents before children.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (StackId, Option<StackId>, FrameId)> + '_ {
        self.rows
            .iter()
            .enumerate()
            .map(|(i, &(parent, frame))| (StackId(i as u32), parent, frame))
    }

    /// Number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_equal_handles_and_share_their_roots() {
        let mut stacks = StackTable::default();
        let a = stacks
            .push_all([FrameId(0), FrameId(1)])
            .expect("two frames");
        let b = stacks
            .push_all([FrameId(0), FrameId(1)])
            .expect("two frames");
        let c = stacks
            .push_all([FrameId(0), FrameId(2)])
            .expect("two frames");
        assert_eq!(a, b);
        assert_eq!(stacks.parent(a), stacks.parent(c));
        assert_eq!(stacks.len(), 3);
        assert_eq!(
            stacks.frames_leaf_first(c).collect::<Vec<_>>(),
            [FrameId(2), FrameId(0)]
        );
    }
}
