//! `throughline rank`: where do the samples land?

use anyhow::Result;
use throughline_analyses::rank::{RankBy, RankPlan, rank, render};
use throughline_profile::CaptureKind;

use crate::args::RankArgs;
use crate::failure::Outcome;
use crate::output::{self, Voice};
use crate::verbs::input;

pub fn run(args: &RankArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    let plan = RankPlan {
        kind: if args.off_cpu {
            CaptureKind::OffCpu
        } else {
            CaptureKind::OnCpu
        },
        by: if args.inclusive {
            RankBy::Inclusive
        } else {
            RankBy::SelfWeight
        },
        limit: (args.limit > 0).then_some(args.limit),
        pid: args.pid,
    };
    let loaded = input::load(&args.capture)?;
    let report = input::or_damage(
        rank(&loaded.profile, plan),
        &args.capture.case,
        &loaded.damage,
    )?;
    if voice.json {
        output::json(&report)?;
    } else {
        output::text(&render(&report))?;
    }
    Ok(input::remarks(&loaded.profile, &loaded.damage, voice))
}
