//! `throughline path`: one function over all its stacks, per request.

use anyhow::Result;
use throughline_analyses::path::{PathError, PathPlan, path, render};

use crate::args::PathArgs;
use crate::failure::Outcome;
use crate::output::{self, Voice};
use crate::verbs::input;

pub fn run(args: &PathArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    let plan = PathPlan {
        function: args.function.clone(),
        pid: args.pid,
        limit: (args.limit > 0).then_some(args.limit),
    };
    let loaded = input::load_of(&args.case, args.capture)?;
    let report = match path(&loaded.profile, &plan) {
        Err(error @ PathError::NoMatch(_)) => {
            Voice {
                quiet: false,
                ..voice
            }
            .remark(&format!("throughline: {error}"));
            return Ok(Outcome::DoesNotHold);
        }
        other => input::or_damage(other, &args.case, &loaded.damage)?,
    };
    if voice.json {
        output::json(&report)?;
    } else {
        output::text(&render(&report))?;
    }
    Ok(input::remarks(&loaded.profile, &loaded.damage, voice))
}
