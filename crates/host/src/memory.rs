//! Memory and swap: /proc/meminfo and /proc/vmstat.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    absence::{Absence, Reading},
    files::{Roots, fields, lines, number},
};

/// Memory at the end of the window, and what happened to it within.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryActivity {
    /// Memory of the machine.
    pub total_bytes: u64,
    /// What could be given out without swapping, by the kernel's estimate.
    pub available_bytes: u64,
    /// Swap in use.
    pub swap_used_bytes: u64,
    /// Pages read from swap.
    pub swapped_in_pages: u64,
    /// Pages written to swap.
    pub swapped_out_pages: u64,
    /// Faults that had to read from disk.
    pub major_faults: u64,
    /// Allocations that had to reclaim memory themselves before they went on.
    pub allocation_stalls: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
}

/// `name value` or `name: value kB` lines.
pub(crate) fn parse(bytes: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    lines(bytes)
        .filter_map(|line| {
            let mut fields = fields(line);
            let name = fields.next()?;
            let name = name.strip_suffix(b":").unwrap_or(name);
            Some((name.to_vec(), number(fields.next()?)?))
        })
        .collect()
}

pub(crate) fn vmstat(roots: &Roots) -> Reading<BTreeMap<Vec<u8>, u64>> {
    roots.proc_file("vmstat").map(|bytes| parse(&bytes))
}

pub(crate) fn meminfo(roots: &Roots) -> Reading<BTreeMap<Vec<u8>, u64>> {
    roots.proc_file("meminfo").map(|bytes| parse(&bytes))
}

/// Joins the memory at the end with the growth of the counters; a counter that went backwards counts 0.
pub(crate) fn activity(
    meminfo: &BTreeMap<Vec<u8>, u64>,
    first: &BTreeMap<Vec<u8>, u64>,
    last: &BTreeMap<Vec<u8>, u64>,
) -> Reading<MemoryActivity> {
    let bytes = |name: &str| {
        meminfo
            .get(name.as_bytes())
            .map(|kib| kib.saturating_mul(1024))
            .ok_or_else(|| Absence::damaged("/proc/meminfo", "a line is missing"))
    };
    let grown = |prefix: &str| {
        last.iter()
            .filter(|(name, _)| name.starts_with(prefix.as_bytes()))
            .map(|(name, last)| last.saturating_sub(first.get(name).copied().unwrap_or(*last)))
            .fold(0u64, u64::saturating_add)
    };
    Ok(MemoryActivity {
        total_bytes: bytes("MemTotal")?,
        available_bytes: bytes("MemAvailable")?,
        swap_used_bytes: bytes("SwapTotal")?.saturating_sub(bytes("SwapFree")?),
        swapped_in_pages: grown("pswpin"),
        swapped_out_pages: grown("pswpout"),
        major_faults: grown("pgmajfault"),
        // One counter per zone: allocstall_dma, allocstall_normal, ...
        allocation_stalls: grown("allocstall"),
        oom_kills: grown("oom_kill"),
    })
}

#[cfg(test)]
mod tests {
    use super::{activity, parse};

    #[test]
    fn memory_is_in_bytes_and_counters_are_growth() {
        let meminfo = parse(
            b"MemTotal:  1000 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\n",
        );
        let first = parse(b"pswpin 5\nallocstall_dma 1\nallocstall_normal 2\npgmajfault 9\n");
        let last = parse(b"pswpin 8\nallocstall_dma 2\nallocstall_normal 6\npgmajfault 3\n");
        let memory = activity(&meminfo, &first, &last).unwrap();
        assert_eq!(
            (memory.total_bytes, memory.swap_used_bytes),
            (1_024_000, 40_960)
        );
        assert_eq!(
            (
                memory.swapped_in_pages,
                memory.allocation_stalls,
                memory.major_faults
            ),
            (3, 5, 0)
        );
        assert!(activity(&parse(b"MemTotal: x kB\n"), &first, &last).is_err());
    }
}
