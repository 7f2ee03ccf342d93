//! What to record, checked before anything is loaded.

use std::time::Duration;

use throughline_units::Nanos;
use throughline_wire::limits::STACK_BYTES_MAX;

/// Rate that is safe on a live machine, in Hz; above it the user must insist.
pub const SAFE_RATE_HZ: u32 = 199;
/// Length that is safe on a live machine; above it the user must insist.
pub const SAFE_DURATION: Duration = Duration::from_secs(60);
/// Above this the timer's own interrupt is a considerable part of what is measured.
const RATE_MAX_HZ: u32 = 10_000;

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// Processes, by id in the recorder's namespace.
    pub pids: Vec<u32>,
    /// Sample running threads.
    pub on_cpu: bool,
    /// Record waiting threads.
    pub off_cpu: bool,
    /// Samples per second of a thread's CPU time.
    pub rate_hz: u32,
    /// How long; `None`: until told to stop or until all targets have ended.
    pub duration: Option<Duration>,
    /// Waits shorter than this are counted but not kept.
    pub min_block: Duration,
    /// Waits longer than this are counted but not kept.
    pub max_block: Duration,
    /// Bytes of user stack that are copied at most.
    pub stack_bytes: u32,
    /// Count requests where the targets run nginx: by nginx's own counter, or by a probe.
    pub count_requests: bool,
    /// Children of targets become targets.
    pub follow_forks: bool,
    /// Go beyond the safe rate and duration.
    pub beyond_safe: bool,
}

impl Default for RecordPlan {
    fn default() -> Self {
        Self {
            pids: Vec::new(),
            on_cpu: true,
            off_cpu: true,
            rate_hz: 99,
            duration: Some(Duration::from_secs(30)),
            min_block: Duration::from_millis(1),
            max_block: Duration::from_secs(5),
            stack_bytes: STACK_BYTES_MAX as u32,
            count_requests: true,
            follow_forks: true,
            beyond_safe: false,
        }
    }
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Neither kind of recording is on.
    #[error("nothing to record: on-CPU and off-CPU are both switched off")]
    Nothing,
    /// The rate is zero or absurd.
    #[error("a rate of {0} Hz cannot be sampled; choose 1 to {RATE_MAX_HZ}")]
    Rate(u32),
    /// Faster or longer than is safe on a live machine.
    #[error(
        "{what} is beyond what is safe on a live machine ({safe}); repeat with --beyond-safe if this machine can bear it"
    )]
    Unsafe {
        /// What was asked.
        what: String,
        /// The safe limit.
        safe: String,
    },
    /// The limits of waits exclude each other.
    #[error("--min-block must be smaller than --max-block")]
    Blocks,
    /// The copy is too large or too small to be of use.
    #[error("the stack copy must be between 512 and {STACK_BYTES_MAX} bytes")]
    StackBytes,
}

impl RecordPlan {
    /// Checks the plan; returns what the user should know though it is allowed.
    ///
    /// # Errors
    /// [`PlanError`] says what to change.
    pub fn check(&self) -> Result<Vec<String>, PlanError> {
        if !self.on_cpu && !self.off_cpu {
            return Err(PlanError::Nothing);
        }
        if self.on_cpu && !(1..=RATE_MAX_HZ).contains(&self.rate_hz) {
            return Err(PlanError::Rate(self.rate_hz));
        }
        if self.off_cpu && self.min_block >= self.max_block {
            return Err(PlanError::Blocks);
        }
        if !(512..=STACK_BYTES_MAX as u32).contains(&self.stack_bytes) {
            return Err(PlanError::StackBytes);
        }
        self.check_safety()?;
        Ok(self
            .on_cpu
            .then(|| lockstep_warning(self.rate_hz))
            .flatten()
            .into_iter()
            .collect())
    }

    fn check_safety(&self) -> Result<(), PlanError> {
        if self.beyond_safe {
            return Ok(());
        }
        if self.on_cpu && self.rate_hz > SAFE_RATE_HZ {
            return Err(PlanError::Unsafe {
                what: format!("{} Hz", self.rate_hz),
                safe: format!("{SAFE_RATE_HZ} Hz"),
            });
        }
        match self.duration {
            Some(duration) if duration > SAFE_DURATION => Err(PlanError::Unsafe {
                what: format!("{} s", duration.as_secs()),
                safe: format!("{} s", SAFE_DURATION.as_secs()),
            }),
            _ => Ok(()),
        }
    }

    /// Time between two samples of a running thread.
    #[must_use]
    pub fn period(&self) -> Nanos {
        Nanos(1_000_000_000 / u64::from(self.rate_hz.max(1)))
    }
}

/// Programs act every 10 or 100 ms; a rate that divides 100 or 1000 can run in phase with them.
fn lockstep_warning(rate_hz: u32) -> Option<String> {
    let divides = |n: u32| n.is_multiple_of(rate_hz);
    (divides(100) || divides(1000)).then(|| {
        format!(
            "{rate_hz} Hz can run in lockstep with timers of the program, which then is seen always or never in the same place; \
             use {} Hz",
            rate_hz.saturating_sub(1).max(1)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_safe_and_free_of_lockstep() {
        assert_eq!(RecordPlan::default().check(), Ok(Vec::new()));
    }

    #[test]
    fn rates_that_divide_a_round_number_are_warned_of() {
        let plan = RecordPlan {
            rate_hz: 100,
            ..RecordPlan::default()
        };
        let warnings = plan.check().expect("allowed");
        assert!(warnings[0].contains("lockstep") && warnings[0].contains("99 Hz"));
    }

    #[test]
    fn beyond_the_safe_limits_the_user_must_insist() {
        let fast = RecordPlan {
            rate_hz: 499,
            ..RecordPlan::default()
        };
        assert!(
            fast.check()
                .expect_err("refused")
                .to_string()
                .contains("--beyond-safe")
        );
        assert!(
            RecordPlan {
                beyond_safe: true,
                ..fast
            }
            .check()
            .is_ok()
        );
        let long = RecordPlan {
            duration: Some(Duration::from_secs(61)),
            ..RecordPlan::default()
        };
        assert!(long.check().is_err());
    }
}
