//! What a recording came to: computed here, shown elsewhere.

use std::path::PathBuf;

use throughline_profile::{Capture, CaptureKind, Ledger, Profile};
use throughline_record::RecordPlan;

use super::counts::{Counts, KindCounts};
use super::keeper::{EndedBy, Finished};
use super::launch::ProgramEnd;
use super::plan::Plan;
use crate::failure::Outcome;

/// From this share of stacks that do not reach the process entry on, a graph misleads more than it shows, and the user is
/// told. Our own choice: the promise is 0.5 %, and ten times that is no accident.
const INCOMPLETE_STACKS_TOLD: f64 = 0.05;

/// A finished recording.
pub struct Summary {
    pub case: PathBuf,
    pub capture: Capture,
    pub ledger: Ledger,
    pub counts: Counts,
    pub ended_by: EndedBy,
    pub program_end: Option<ProgramEnd>,
    /// CPU time of all targets together, in ns, as far as it could be read.
    pub targets_cpu_ns: Option<u64>,
    /// On-CPU samples that this CPU time should give.
    pub expected_on_cpu: Option<f64>,
    /// The stacks of the kind that was recorded; on-CPU when both were.
    pub stacks: Stacks,
    /// The rate was above what is safe, and its cost is to be shown.
    pub beyond_safe: bool,
}

/// How many stacks are whole.
pub struct Stacks {
    pub kind: CaptureKind,
    pub samples: u64,
    pub incomplete: u64,
    /// Why, as far as it can be told; `None` when nearly all are whole.
    pub problem: Option<String>,
}

impl Stacks {
    /// Share of the samples whose stack does not reach the process entry; 0 without samples.
    pub fn incomplete_share(&self) -> f64 {
        if self.samples == 0 {
            0.0
        } else {
            self.incomplete as f64 / self.samples as f64
        }
    }

    /// There are samples, and no stack of them is whole.
    pub fn none_is_whole(&self) -> bool {
        self.samples > 0 && self.incomplete == self.samples
    }
}

impl Summary {
    pub fn new(plan: &Plan, finished: Finished) -> Self {
        let profile = finished.recorded.profile;
        let (kind, counts) = if plan.record.on_cpu {
            (CaptureKind::OnCpu, &finished.counts.on_cpu)
        } else {
            (CaptureKind::OffCpu, &finished.counts.off_cpu)
        };
        let stacks = stacks(&profile, kind, counts, &plan.record);
        let targets_cpu_ns = profile
            .capture
            .targets
            .iter()
            .filter_map(|target| target.cpu_ns)
            .reduce(u64::saturating_add);
        let rate = plan.record.on_cpu.then_some(f64::from(plan.record.rate_hz));
        Self {
            case: plan.case.clone(),
            expected_on_cpu: targets_cpu_ns
                .zip(rate)
                .map(|(ns, rate)| ns as f64 / 1e9 * rate),
            targets_cpu_ns,
            stacks,
            counts: finished.counts,
            ended_by: finished.ended_by,
            program_end: finished.program_end,
            beyond_safe: plan.record.beyond_safe,
            ledger: profile.ledger,
            capture: profile.capture,
        }
    }

    /// CPU time of the recorder as a share of one core.
    pub fn recorder_cpu_share(&self) -> f64 {
        let seconds = self.capture.duration.as_secs_f64();
        if seconds > 0.0 {
            self.capture.recorder_cpu.as_secs_f64() / seconds
        } else {
            0.0
        }
    }

    /// Share of a core that sampling costs a thread that is always running: time per sample times rate.
    pub fn sampling_cost_share(&self) -> Option<f64> {
        let ns = self.capture.bpf_ns_per_sample_mean?;
        Some(ns * f64::from(self.capture.rate_hz) / 1e9)
    }

    pub fn outcome(&self) -> Outcome {
        if self.stacks.none_is_whole() {
            Outcome::NotEnoughData
        } else {
            Outcome::Done
        }
    }
}

fn stacks(profile: &Profile, kind: CaptureKind, counts: &KindCounts, plan: &RecordPlan) -> Stacks {
    let mut stacks = Stacks {
        kind,
        samples: counts.samples,
        incomplete: counts.incomplete(),
        problem: None,
    };
    if stacks.incomplete_share() > INCOMPLETE_STACKS_TOLD {
        stacks.problem = Some(problem(profile, counts, plan));
    }
    stacks
}

/// The reasons, each with its number, most frequent first.
fn problem(profile: &Profile, counts: &KindCounts, plan: &RecordPlan) -> String {
    let most = RecordPlan::default().stack_bytes;
    let deeper = if plan.stack_bytes < most {
        format!(
            "deeper than the {} bytes that are copied (up to --stack-bytes {most})",
            plan.stack_bytes
        )
    } else {
        format!("deeper than the {most} bytes that can be copied")
    };
    let mut reasons = vec![
        (counts.truncated, deeper),
        (
            counts.unwind_incomplete,
            format!("no way on for the unwinder{}", stopped_at(profile, counts)),
        ),
        (
            counts.no_stack,
            "no stack at all: the thread ended, or its memory could not be read".to_owned(),
        ),
    ];
    reasons.retain(|(count, _)| *count > 0);
    reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let texts: Vec<String> = reasons
        .iter()
        .map(|(count, text)| format!("{count} {text}"))
        .collect();
    texts.join("; ")
}

/// Where the unwinder stopped most often, and what that usually means.
fn stopped_at(profile: &Profile, counts: &KindCounts) -> String {
    let Some((frame, count)) = counts.stopped_most_at() else {
        return String::new();
    };
    let frame = profile.frames.get(frame);
    let name = profile.strings.get(frame.name);
    let place = match frame.module {
        Some(module) => {
            let path = profile.strings.get(profile.modules.get(module).path);
            format!(
                "{name} of {path}: built without unwinding tables (.eh_frame) and without frame pointers?"
            )
        }
        None => format!(
            "{name}: code of no file, made at run time or mapped after the recorder looked?"
        ),
    };
    format!(", {count} of them at {place}")
}
