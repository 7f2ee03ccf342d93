//! Memory made of byte arrays, for tests and fuzzing.

use crate::memory::{Memory, MemoryError};

/// Segments of bytes at fixed addresses. Reads may cross from one segment into the next when they
/// touch; where segments overlap, the one added first is read.
#[derive(Debug, Clone, Default)]
pub struct FixtureMemory {
    segments: Vec<(u64, Vec<u8>)>,
}

impl FixtureMemory {
    /// Memory with nothing in it.
    pub fn new() -> FixtureMemory {
        FixtureMemory::default()
    }

    /// Adds `bytes` at `address`; what would lie past the end of the address space is cut.
    pub fn add(&mut self, address: u64, mut bytes: Vec<u8>) -> &mut FixtureMemory {
        bytes.truncate(usize::try_from(u64::MAX - address).unwrap_or(usize::MAX));
        self.segments.push((address, bytes));
        self
    }

    /// Replaces the bytes at `address`, which must lie in one segment; false when they do not.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let place = self.segments.iter_mut().find_map(|(start, segment)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            segment.get_mut(offset..offset.checked_add(bytes.len())?)
        });
        match place {
            Some(place) => {
                place.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

impl Memory for FixtureMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let mut done = 0;
        while done < into.len() {
            let unmapped = MemoryError::Unmapped {
                address: address.saturating_add(done as u64),
            };
            let Some(at) = address.checked_add(done as u64) else {
                return Err(unmapped);
            };
            let found = self.segments.iter().find_map(|(start, segment)| {
                let offset = usize::try_from(at.checked_sub(*start)?).ok()?;
                segment.get(offset..).filter(|rest| !rest.is_empty())
            });
            let Some(rest) = found else {
                return Err(unmapped);
            };
            let step = rest.len().min(into.len() - done);
            into[done..done + step].copy_from_slice(&rest[..step]);
            done += step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_crosses_touching_segments_and_stops_at_a_gap() {
        let mut memory = FixtureMemory::new();
        memory
            .add(0x10, vec![1, 2])
            .add(0x12, vec![3])
            .add(0x14, vec![5]);
        let mut bytes = [0; 3];
        assert_eq!(memory.read(0x10, &mut bytes), Ok(()));
        assert_eq!(bytes, [1, 2, 3]);
        let mut bytes = [0; 5];
        let gap = MemoryError::Unmapped { address: 0x13 };
        assert_eq!(memory.read(0x10, &mut bytes), Err(gap));
    }

    #[test]
    fn a_length_over_the_bound_is_refused_before_anything_is_read() {
        let memory = FixtureMemory::new();
        let refused = MemoryError::TooLong {
            address: 8,
            asked: u64::MAX,
            limit: 64,
        };
        assert_eq!(memory.read_vec(8, u64::MAX, 64), Err(refused));
        assert_eq!(
            memory.read_vec(8, 1, 64),
            Err(MemoryError::Unmapped { address: 8 })
        );
        assert_eq!(memory.read_vec(u64::MAX, 0, 64), Ok(vec![]));
    }
}
