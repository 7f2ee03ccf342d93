//! Which CPU does what: the load and the upstream share one, the workers have the others.

use super::LabError;
use crate::sys;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CpuPlan {
    /// The CPU of each worker.
    pub(super) workers: Vec<usize>,
    /// The CPU of the load and of the upstream.
    pub(super) load: usize,
    /// Why the plan is not the usual one.
    pub(super) note: Option<String>,
}

impl CpuPlan {
    pub(super) fn of_this_machine(workers: u32) -> Result<Self, LabError> {
        let allowed = sys::allowed_cpus().map_err(|source| LabError::System {
            action: "read the allowed CPUs",
            source,
        })?;
        Ok(Self::choose(&allowed, workers))
    }

    /// The first CPU allowed to us goes to the workers and the second to the load; with more than
    /// two, further workers get CPUs of their own.
    fn choose(allowed: &[usize], workers: u32) -> Self {
        let first = allowed.first().copied().unwrap_or(0);
        let load = allowed.get(1).copied().unwrap_or(first);
        let for_workers: Vec<usize> = allowed
            .iter()
            .copied()
            .enumerate()
            .filter_map(|(index, cpu)| (index != 1).then_some(cpu))
            .collect();
        let workers = (0..workers as usize)
            .map(|worker| {
                let turn = worker.checked_rem(for_workers.len()).unwrap_or(0);
                for_workers.get(turn).copied().unwrap_or(first)
            })
            .collect();
        let note = (allowed.len() < 2).then(|| {
            format!("only CPU {first} is allowed here: load, upstream and workers share it, so capacity is not measured")
        });
        Self {
            workers,
            load,
            note,
        }
    }

    /// The argument of nginx's `worker_cpu_affinity` for the workers.
    pub(super) fn worker_masks(&self) -> String {
        self.workers
            .iter()
            .map(|&cpu| mask(cpu))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The same for one worker on the CPU of the load.
    pub(super) fn load_mask(&self) -> String {
        mask(self.load)
    }
}

/// nginx writes a CPU set as binary digits, CPU 0 last.
fn mask(cpu: usize) -> String {
    format!("1{}", "0".repeat(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_give_one_to_all_workers_and_one_to_the_load() {
        let plan = CpuPlan::choose(&[0, 1], 2);
        assert_eq!((plan.workers.as_slice(), plan.load), (&[0, 0][..], 1));
        assert_eq!(
            (plan.worker_masks().as_str(), plan.load_mask().as_str()),
            ("1 1", "10")
        );
        assert_eq!(plan.note, None);
    }

    #[test]
    fn more_cpus_spread_the_workers_and_leave_the_load_alone() {
        let plan = CpuPlan::choose(&[2, 3, 5], 3);
        assert_eq!((plan.workers.as_slice(), plan.load), (&[2, 5, 2][..], 3));
        assert_eq!(plan.worker_masks(), "100 100000 100");
    }

    #[test]
    fn a_single_cpu_is_shared_and_said_so() {
        let plan = CpuPlan::choose(&[4], 1);
        assert_eq!((plan.workers.as_slice(), plan.load), (&[4][..], 4));
        assert!(plan.note.is_some());
    }
}
