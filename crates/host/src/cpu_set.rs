//! Sets of cores, in the kernel's list notation (`0-3,8`).

use serde::{Serialize, Serializer};

/// More cores than any kernel is built for (`NR_CPUS` is at most 8192); a list beyond it is damaged.
const MOST_CORES: u32 = 1 << 16;

/// The cores a thread may run on, ascending. Serialises as the kernel's list notation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSet(Vec<(u32, u32)>);

impl CpuSet {
    /// Parses `0-3,8`. Blanks around it are ignored; an empty list is an empty set.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let text =
            std::str::from_utf8(text.trim_ascii()).map_err(|_| "a cpu list that is not text")?;
        let mut ranges = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u32 = low
                .parse()
                .map_err(|_| "a cpu list with a part that is no number")?;
            let high: u32 = high
                .parse()
                .map_err(|_| "a cpu list with a part that is no number")?;
            if low > high || high >= MOST_CORES {
                return Err("a cpu list with an impossible range");
            }
            ranges.push((low, high));
        }
        ranges.sort_unstable();
        Ok(Self(ranges))
    }

    /// Whether the set has this core.
    pub fn contains(&self, core: u32) -> bool {
        self.0
            .iter()
            .any(|&(low, high)| (low..=high).contains(&core))
    }

    /// Whether the two sets have a core in common.
    pub fn intersects(&self, other: &Self) -> bool {
        self.0
            .iter()
            .any(|&(low, high)| other.0.iter().any(|&(l, h)| low <= h && l <= high))
    }

    /// How many of the given cores the set has; a set may name cores that the machine lacks.
    pub fn count_of(&self, cores: impl Iterator<Item = u32>) -> usize {
        cores.filter(|&core| self.contains(core)).count()
    }

    /// The core, when the set is exactly one.
    pub fn only(&self) -> Option<u32> {
        match self.0.as_slice() {
            [(low, high)] if low == high => Some(*low),
            _ => None,
        }
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, (low, high)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            if low == high {
                write!(out, "{comma}{low}")?
            } else {
                write!(out, "{comma}{low}-{high}")?
            }
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;

    #[test]
    fn the_kernels_notation_is_read_and_written_back() {
        let set = CpuSet::parse(b"\t0-3,8\n").unwrap();
        assert_eq!(set.to_string(), "0-3,8");
        assert!(set.contains(2) && set.contains(8) && !set.contains(4));
        assert_eq!(CpuSet::parse(b"5").unwrap().only(), Some(5));
        assert_eq!(set.only(), None);
        assert_eq!(set.count_of(2..10), 3);
        assert!(!set.intersects(&CpuSet::parse(b"4-7").unwrap()));
        assert!(set.intersects(&CpuSet::parse(b"2").unwrap()));
    }

    #[test]
    fn a_damaged_list_is_an_error_not_a_panic() {
        for text in [
            &b"3-1"[..],
            b"-",
            b"a",
            b"0-99999999999",
            b"\xff",
            b"1--2",
            b"4294967295",
        ] {
            assert!(CpuSet::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(CpuSet::parse(b"").unwrap().to_string(), "");
    }
}
