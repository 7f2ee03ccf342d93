//! `throughline check`: may a graph explain this throughput?

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result};
use throughline_analyses::check::check;
use throughline_host::{PeerChoice, Plan, sample};

use crate::args::CheckArgs;
use crate::failure::Outcome;
use crate::output::{self, ProgressLine, Voice};
use crate::signals::Interrupts;
use crate::verbs::targets::{Selection, proc_is_ours};

pub fn run(args: CheckArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    proc_is_ours()?;
    let plan = Plan {
        targets: Selection::from(args.target).find()?,
        upstream: peers(args.upstream_pid, "--upstream-pid")?,
        load: peers(args.load_pid, "--load-pid")?,
        duration: args.window,
        interval: args.interval.min(args.window),
    };
    let interrupts = Interrupts::watch()?;
    let line = ProgressLine::new(voice, Some(args.window));
    let observation = sample(&plan, &mut |elapsed: Duration| {
        line.show(elapsed, "watching");
        if interrupts.came() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    line.clear();
    let report = check(&observation);
    if voice.json {
        output::json(&report.to_json())?;
    } else {
        output::text(&(report.text_lines().join("\n") + "\n"))?;
    }
    Ok(match report.exit_code() {
        0 => Outcome::Done,
        3 => Outcome::NotEnoughData,
        _ => Outcome::DoesNotHold,
    })
}

fn peers(pids: Vec<u32>, option: &'static str) -> Result<PeerChoice> {
    if pids.is_empty() {
        return Ok(PeerChoice::FindOnConnections);
    }
    let processes = Selection::pids(pids).find().context(option)?;
    Ok(PeerChoice::Given(processes))
}
