//! Recordings, and questions about them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use throughline_profile::{
    Capture, Flags, Frame, FrameKind, Measure, OffCpu, Profile, Sample, SampleKind, SwitchReason,
    Target,
};
use throughline_record::{Keeper, Progress, RecordError, RecordPlan, Recorded, ThreadTimes};

use super::program::Program;

/// A recording that was kept whole in memory.
pub struct Recording {
    pub profile: Profile,
    pub threads: Vec<ThreadTimes>,
}

/// The plan of a test: fast enough for small errors, and not a divisor of anything.
pub struct Plan;

impl Plan {
    pub fn on_cpu(rate_hz: u32) -> RecordPlan {
        RecordPlan {
            off_cpu: false,
            ..Self::both(rate_hz)
        }
    }

    pub fn off_cpu() -> RecordPlan {
        RecordPlan {
            on_cpu: false,
            ..Self::both(99)
        }
    }

    pub fn both(rate_hz: u32) -> RecordPlan {
        RecordPlan {
            rate_hz,
            beyond_safe: true,
            duration: Some(Duration::from_secs(30)),
            ..RecordPlan::default()
        }
    }
}

/// Recordings share two cores; one after the other, each has a calm machine as far as these tests are concerned.
pub fn one_at_a_time() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-at-a-time.lock");
    let file = File::create(path).expect("the target directory can be written");
    file.lock().expect("the lock can be waited for");
    file
}

struct Keep<'a> {
    /// Called once when recording has begun.
    begin: Option<Box<dyn FnOnce() + 'a>>,
    /// Says when it is over.
    over: Box<dyn FnMut(Progress) -> bool + 'a>,
}

impl Keeper for Keep<'_> {
    /// The samples stay in the profile.
    fn flush(&mut self, _: &mut Profile) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    fn go_on(&mut self, progress: Progress) -> bool {
        match self.begin.take() {
            Some(begin) => begin(),
            None => return !(self.over)(progress),
        }
        true
    }
}

/// Records; `begin` is called when everything is attached, and `over` says when to end. `None`, after a word on standard
/// error, where the machine cannot.
pub fn record<'a>(
    plan: &RecordPlan,
    begin: impl FnOnce() + 'a,
    over: impl FnMut(Progress) -> bool + 'a,
) -> Option<Recording> {
    let mut keep = Keep {
        begin: Some(Box::new(begin)),
        over: Box::new(over),
    };
    match throughline_record::record(plan, Capture::default(), &mut keep) {
        Ok(Recorded { profile, threads }) => Some(Recording { profile, threads }),
        Err(RecordError::Programs(error)) => {
            eprintln!("SKIPPED: ebpf: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Lets a waiting program work, and records it until it ends.
pub fn record_to_the_end(plan: RecordPlan, program: &mut Program) -> Option<Recording> {
    let plan = RecordPlan {
        pids: vec![program.pid()],
        ..plan
    };
    record(&plan, || program.go(), |_| false)
}

/// Records processes for some time.
pub fn record_for(plan: RecordPlan, pids: &[u32], duration: Duration) -> Option<Recording> {
    let plan = RecordPlan {
        pids: pids.to_vec(),
        duration: Some(duration),
        ..plan
    };
    record(&plan, || (), |_| false)
}

impl Recording {
    pub fn name(&self, frame: &Frame) -> &str {
        self.profile.strings.get(frame.name)
    }

    /// Path of the file that a frame's code is in.
    pub fn module(&self, frame: &Frame) -> Option<&str> {
        Some(
            self.profile
                .strings
                .get(self.profile.modules.get(frame.module?).path),
        )
    }

    /// Frames of a sample, innermost first.
    pub fn frames(&self, sample: &Sample) -> Vec<&Frame> {
        let Some(stack) = sample.stack else {
            return Vec::new();
        };
        self.profile
            .stacks
            .frames_leaf_first(stack)
            .map(|id| self.profile.frames.get(id))
            .collect()
    }

    /// The stack as text, root first: `name:line;name:line`.
    pub fn text(&self, sample: &Sample) -> String {
        let mut names: Vec<String> = self
            .frames(sample)
            .iter()
            .map(|frame| format!("{}:{}", self.name(frame), frame.line))
            .collect();
        names.reverse();
        names.join(";")
    }

    /// The heaviest stacks of each kind, for a failed test's output.
    pub fn print_stacks(&self) {
        let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
        for sample in self.profile.samples.iter() {
            let (measure, weight) = Measure::of(sample.kind);
            let place = format!(
                "{measure:?} {} flags={} {}",
                sample.lua.as_str(),
                sample.flags.0,
                self.text(sample)
            );
            *stacks.entry(place).or_default() += weight;
        }
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_by_key(|(_, weight)| Reverse(*weight));
        for (stack, weight) in stacks.iter().take(12) {
            eprintln!("    {weight} {stack}");
        }
        eprintln!("    {}", self.profile.ledger);
    }

    pub fn on_cpu(&self) -> impl Iterator<Item = &Sample> {
        self.profile
            .samples
            .iter()
            .filter(|sample| sample.kind == SampleKind::OnCpu)
    }

    pub fn off_cpu(&self) -> impl Iterator<Item = (&Sample, OffCpu)> {
        self.profile
            .samples
            .iter()
            .filter_map(|sample| match sample.kind {
                SampleKind::OffCpu(off) => Some((sample, off)),
                SampleKind::OnCpu => None,
            })
    }

    /// The name of the innermost Lua function of a sample.
    pub fn lua_function(&self, sample: &Sample) -> Option<&str> {
        self.frames(sample)
            .into_iter()
            .find(|frame| frame.kind == FrameKind::Lua)
            .map(|frame| self.name(frame))
    }

    /// Whether a sample has a frame of this name.
    pub fn holds(&self, sample: &Sample, name: &str) -> bool {
        self.frames(sample)
            .iter()
            .any(|frame| self.name(frame) == name)
    }

    /// Off-CPU time of the stretches that hold a function, in ns: voluntary ones and others.
    pub fn waited_in(&self, name: &str) -> (f64, f64) {
        let mut waited = (0.0, 0.0);
        for (_, off) in self
            .off_cpu()
            .filter(|(sample, _)| self.holds(sample, name))
        {
            match off.reason {
                SwitchReason::Voluntary => waited.0 += off.duration.0 as f64,
                SwitchReason::Preempted => waited.1 += off.duration.0 as f64,
            }
        }
        waited
    }

    /// The one recorded process.
    pub fn target(&self) -> &Target {
        assert_eq!(self.profile.capture.targets.len(), 1);
        &self.profile.capture.targets[0]
    }

    /// Kept on-CPU samples that are not complete to the process's entry.
    pub fn incomplete(&self) -> usize {
        self.on_cpu()
            .filter(|sample| {
                sample.flags.contains(Flags::STACK_TRUNCATED)
                    || sample.flags.contains(Flags::NATIVE_UNWIND_INCOMPLETE)
            })
            .count()
    }

    /// Fails unless every ledger adds up and the profile holds what they say.
    pub fn assert_ledgers_balance(&self) {
        let capture = &self.profile.capture;
        for ledger in [
            &self.profile.ledger,
            &capture.ledger_on_cpu,
            &capture.ledger_off_cpu,
        ] {
            assert!(ledger.balances(), "{ledger}");
            assert!(!ledger.lost.contains_key("in_flight"), "{ledger}");
        }
        let (on_cpu, off_cpu) = throughline_record::sample_counts(&self.profile);
        assert_eq!(capture.ledger_on_cpu.kept, on_cpu as u64);
        assert_eq!(capture.ledger_off_cpu.kept, off_cpu as u64);
    }

    /// Fails unless the shares of the samples, as `of` sorts them, are within 3 points of the program's own account.
    pub fn assert_shares<'a>(
        &'a self,
        truth: &[(String, f64)],
        of: impl Fn(&'a Sample) -> Option<String>,
    ) {
        let total: f64 = truth.iter().map(|(_, ns)| ns).sum();
        let samples = self.on_cpu().count();
        assert!(
            samples > 500,
            "only {samples} samples: {}",
            self.profile.ledger
        );
        for (name, ns) in truth {
            let found = self
                .on_cpu()
                .filter(|&sample| of(sample).as_ref() == Some(name))
                .count();
            let (told, recorded) = (100.0 * ns / total, 100.0 * found as f64 / samples as f64);
            eprintln!(
                "{name}: the program says {told:.2} %, the recording {recorded:.2} % of {samples}"
            );
            assert!(
                (told - recorded).abs() <= 3.0,
                "{name}: {told:.2} % against {recorded:.2} %"
            );
        }
    }
}
