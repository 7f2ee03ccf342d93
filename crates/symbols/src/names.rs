//! Many names in one allocation, for tables that cannot point into a file.

/// A name in [`Names`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameId {
    offset: u32,
    length: u32,
}

/// Appends only; at most 4 GiB, and less where the owner says so.
#[derive(Debug)]
pub(crate) struct Names {
    text: Vec<u8>,
    max_bytes: usize,
}

impl Names {
    pub fn with_limit(max_bytes: usize) -> Self {
        Self {
            text: Vec::new(),
            max_bytes: max_bytes.min(u32::MAX as usize),
        }
    }

    /// `None` when the limit is reached.
    pub fn add(&mut self, name: &[u8]) -> Option<NameId> {
        let name = name.get(..crate::Name::MAX_BYTES).unwrap_or(name);
        if self.text.len().checked_add(name.len())? > self.max_bytes {
            return None;
        }
        let id = NameId {
            offset: u32::try_from(self.text.len()).ok()?,
            length: u32::try_from(name.len()).ok()?,
        };
        self.text.extend_from_slice(name);
        Some(id)
    }

    pub fn get(&self, id: NameId) -> &[u8] {
        let start = id.offset as usize;
        self.text
            .get(start..start + id.length as usize)
            .unwrap_or_default()
    }
}
