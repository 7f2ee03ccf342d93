//! Which part of a capture a graph shows.

use throughline_profile::Profile;
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
