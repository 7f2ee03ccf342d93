//! Stretches of addresses that may be reassigned: the last assignment wins.
//!
//! What compilers at run time report: they reuse memory, and a later entry overrides whatever parts
//! of earlier ones it covers.

use std::collections::BTreeMap;

/// Stretches by first address, free of overlap.
#[derive(Debug, Default)]
pub(crate) struct AddressMap<T> {
    stretches: BTreeMap<u64, Stretch<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch<T> {
    pub end: u64,
    /// Where the whole function started, before others took parts of it.
    pub function_start: u64,
    pub value: T,
}

impl<T: Copy> AddressMap<T> {
    /// Assigns `[start, end)` to `value`. An empty range does nothing.
    pub fn assign(&mut self, start: u64, end: u64, value: T) {
        if start >= end {
            return;
        }
        self.clear(start, end);
        let stretch = Stretch {
            end,
            function_start: start,
            value,
        };
        self.stretches.insert(start, stretch);
    }

    /// Takes `[start, end)` from whoever has it.
    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&at, &old)) = self.stretches.range(..end).next_back() {
            if old.end <= start {
                return;
            }
            self.stretches.remove(&at);
            if old.end > end {
                self.stretches.insert(end, old);
            }
            if at < start {
                self.stretches.insert(at, Stretch { end: start, ..old });
                return;
            }
        }
    }

    pub fn find(&self, address: u64) -> Option<&Stretch<T>> {
        let (_, stretch) = self.stretches.range(..=address).next_back()?;
        (address < stretch.end).then_some(stretch)
    }

    pub fn len(&self) -> usize {
        self.stretches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_address_has_the_value_assigned_last(
            assignments in prop::collection::vec((0u64..60, 0u64..20), 0..40)
        ) {
            let mut map = AddressMap::default();
            let mut plain = [None; 100];
            for (value, &(start, length)) in assignments.iter().enumerate() {
                map.assign(start, start + length, value);
                for slot in &mut plain[start as usize..(start + length) as usize] {
                    *slot = Some((value, start));
                }
            }
            for (address, expected) in plain.iter().enumerate() {
                let found = map.find(address as u64).map(|s| (s.value, s.function_start));
                prop_assert_eq!(found, *expected);
            }
        }
    }
}
