//! Which part of a capture a graph shows.

use throughline_profile::{Profile, SampleKind};
use throughline_report::{View, ViewPlan};

use crate::args::ViewArgs;
use crate::failure::TooFewData;

impl From<&ViewArgs> for ViewPlan {
    fn from(args: &ViewArgs) -> Self {
        Self {
            view: match (args.off_cpu, args.idle) {
                (true, _) => View::OffCpu,
                (_, true) => View::OffCpuIdle,
                _ => View::OnCpu,
            },
            zoom: args.zoom.clone(),
            search: args.search.clone(),
            inverted: args.inverted,
        }
    }
}

/// Refuses to draw a graph of a capture without any sample.
pub fn must_hold_samples(profile: &Profile) -> Result<(), TooFewData> {
    if !profile.samples.is_empty() {
        return Ok(());
    }
    Err(TooFewData(format!(
        "capture {} holds no sample: nothing to draw; record while the targets have work, or with shorter --min-block",
        profile.capture.number
    )))
}

/// Refuses to draw one view when none of the samples is in it.
pub fn must_be_seen(profile: &Profile, view: View) -> Result<(), TooFewData> {
    must_hold_samples(profile)?;
    let (in_view, name, elsewhere): (fn(SampleKind) -> bool, _, _) = match view {
        View::OnCpu => (
            |kind| kind == SampleKind::OnCpu,
            "on-CPU sample",
            "--off-cpu or --idle",
        ),
        View::OffCpu => (
            |kind| matches!(kind, SampleKind::OffCpu(off) if !off.idle),
            "wait for a result or a core",
            "--idle, or on-CPU without either",
        ),
        View::OffCpuIdle => (
            |kind| matches!(kind, SampleKind::OffCpu(off) if off.idle),
            "wait for work",
            "--off-cpu, or on-CPU without either",
        ),
    };
    if profile.samples.iter().any(|sample| in_view(sample.kind)) {
        return Ok(());
    }
    Err(TooFewData(format!(
        "capture {} holds no {name}: nothing to draw in this view; it has others ({elsewhere})",
        profile.capture.number
    )))
}
