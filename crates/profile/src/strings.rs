//! Every distinct name, once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Handle of a string in its [`StringTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(pub u32);

/// Distinct strings. Text is kept as it was read: whoever shows it escapes it.
#[derive(Clone, Debug, Default)]
pub struct StringTable {
    strings: Vec<Arc<str>>,
    index: FxHashMap<Arc<str>, StringId>,
}

impl StringTable {
    /// The handle of this text, new or known.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        let id = StringId(self.strings.len() as u32);
        let shared: Arc<str> = text.into();
        self.strings.push(shared.clone());
        self.index.insert(shared, id);
        id
    }

    /// The text behind a handle of this table.
    #[must_use]
    pub fn get(&self, id: StringId) -> &str {
        &self.strings[id.0 as usize]
    }

    /// All strings in the order in which they were first seen.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (StringId, &str)> {
        self.strings
            .iter()
            .enumerate()
            .map(|(i, text)| (StringId(i as u32), &**text))
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there is no string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}
