//! What each core did: the `cpuN` lines of /proc/stat, see proc_stat(5).
//!
//! Caveats: user time includes guest time, so guest is not added again; iowait is what an idle core could
//! have attributed to disk, it moves between cores and may decrease; steal is 0 on hypervisors that
//! do not report it, so 0 does not prove that no time was stolen.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::files::{fields, lines, number};

/// The eight counters we use of a core, in clock ticks, in the file's order.
type Ticks = [u64; 8];

/// The names of [`Ticks`].
const NAMES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];

/// What one core did in the window. Shares are of the ticks counted on that core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoreActivity {
    /// Number of the core.
    pub core: u32,
    /// Ticks the core counted, of all kinds: the denominator of the shares.
    pub ticks: u64,
    /// User code, niced included.
    pub user_share: f64,
    /// Kernel code on behalf of a thread.
    pub system_share: f64,
    /// Nothing to do.
    pub idle_share: f64,
    /// Nothing to do while a thread that last ran here waits for disk.
    pub iowait_share: f64,
    /// Hardware interrupts.
    pub irq_share: f64,
    /// Soft interrupts.
    pub softirq_share: f64,
    /// Wanted by this machine and given to another by the hypervisor.
    pub steal_share: f64,
    /// Counters that decreased in the window and were taken as 0.
    pub went_backwards: Vec<&'static str>,
}

/// Parses the `cpuN` lines. A line that does not parse is left out.
pub(crate) fn parse(bytes: &[u8]) -> BTreeMap<u32, Ticks> {
    lines(bytes).filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<(u32, Ticks)> {
    let mut fields = fields(line);
    let core = number(fields.next()?.strip_prefix(b"cpu")?)?;
    let mut ticks = [0; 8];
    for (position, slot) in ticks.iter_mut().enumerate() {
        match fields.next() {
            Some(field) => *slot = number(field)?,
            // Kernels before 2.6.11 end with softirq; user to idle are in all of them.
            None if position > 3 => break,
            None => return None,
        }
    }
    Some((u32::try_from(core).ok()?, ticks))
}

/// What each core did between two readings. A core that one of them lacks (hot-plugged) is left out.
pub(crate) fn between(
    first: &BTreeMap<u32, Ticks>,
    last: &BTreeMap<u32, Ticks>,
) -> Vec<CoreActivity> {
    last.iter()
        .filter_map(|(&core, last)| Some(activity(core, first.get(&core)?, last)))
        .collect()
}

fn activity(core: u32, first: &Ticks, last: &Ticks) -> CoreActivity {
    let mut grown = [0u64; 8];
    let mut went_backwards = Vec::new();
    for (((slot, name), first), last) in grown.iter_mut().zip(NAMES).zip(first).zip(last) {
        match last.checked_sub(*first) {
            Some(growth) => *slot = growth,
            None => went_backwards.push(name),
        }
    }
    let ticks = grown
        .iter()
        .fold(0u64, |sum, &growth| sum.saturating_add(growth));
    let share = |growth: u64| {
        if ticks == 0 {
            0.0
        } else {
            growth as f64 / ticks as f64
        }
    };
    let [user, nice, system, idle, iowait, irq, softirq, steal] = grown;
    CoreActivity {
        core,
        ticks,
        user_share: share(user.saturating_add(nice)),
        system_share: share(system),
        idle_share: share(idle),
        iowait_share: share(iowait),
        irq_share: share(irq),
        softirq_share: share(softirq),
        steal_share: share(steal),
        went_backwards,
    }
}

#[cfg(test)]
mod tests {
    use super::{between, parse};

    #[test]
    fn shares_are_of_the_ticks_that_core_counted() {
        let first =
            parse(b"cpu  1 1 1 1\ncpu0 100 0 100 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n");
        let last =
            parse(b"cpu  1 1 1 1\ncpu0 140 10 120 120 5 1 2 2 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n");
        let cores = between(&first, &last);
        assert_eq!(cores.len(), 2);
        // 40 + 10 + 20 + 20 + 5 + 1 + 2 + 2 = 100 ticks.
        assert_eq!(cores[0].ticks, 100);
        assert_eq!(
            (
                cores[0].user_share,
                cores[0].steal_share,
                cores[0].iowait_share
            ),
            (0.5, 0.02, 0.05)
        );
        assert_eq!((cores[1].ticks, cores[1].user_share), (0, 0.0));
    }

    #[test]
    fn a_counter_that_goes_backwards_is_named_and_taken_as_zero() {
        let first = parse(b"cpu0 100 0 0 100 50 0 0 0\n");
        let last = parse(b"cpu0 110 0 0 190 40 0 0 0\n");
        let cores = between(&first, &last);
        assert_eq!(cores[0].went_backwards, ["iowait"]);
        assert_eq!((cores[0].ticks, cores[0].user_share), (100, 0.1));
    }

    #[test]
    fn damaged_lines_cost_only_themselves() {
        let cores =
            parse(b"cpu0 x\ncpu1\ncpuz 1 2 3 4\ncpu99999999999 1 2 3 4\ncpu2 1 2 3 4\n\xff\n");
        assert_eq!(cores.keys().copied().collect::<Vec<_>>(), [2]);
    }
}
