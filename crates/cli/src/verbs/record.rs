//! `throughline record`: live processes into a case file.

mod case_file;
mod counts;
mod document;
mod keeper;
mod launch;
mod nameless;
mod plan;
mod status_page;
mod summary;
mod text;

use anyhow::Result;
use throughline_host::Process;
use throughline_profile::{Capture, CaptureKind};
use throughline_record::{ProgramFiles, RecordError, RecordPlan, Recorded, record_with};
use throughline_target::MemoryError;

use crate::args::RecordArgs;
use crate::failure::Outcome;
use crate::output::{self, ProgressLine, TOOL};
use crate::signals::Interrupts;
use crate::verbs::targets::proc_is_ours;
use case_file::CaseFile;
use keeper::{CaseKeeper, Rescan, Watch};
use launch::Launched;
use plan::{Plan, Subject};
use status_page::PageRequests;
use summary::Summary;

pub use launch::run_when_recorded;

pub fn run(args: RecordArgs) -> Result<Outcome> {
    let plan = Plan::new(args)?;
    proc_is_ours()?;
    let interrupts = Interrupts::watch()?;
    let case = CaseFile::open(&plan.case)?;
    let (launched, targets) = match &plan.subject {
        Subject::Command(words) => {
            let launched = Launched::start(words)?;
            let targets = launched.targets()?;
            (Some(launched), targets)
        }
        Subject::Running(selection) => (None, selection.find()?),
    };
    let mut files = ProgramFiles::default();
    tell_nameless(&plan, &targets, &mut files);
    let capture = capture_facts(&plan);
    let watch = Watch {
        line: progress_line(&plan),
        interrupts,
        program: launched,
        rescan: rescan(&plan),
        requests: plan.requests_from.clone().map(PageRequests::new),
    };
    let mut keeper = CaseKeeper::new(&case, capture.clone(), watch);
    let result = record_living(&plan, &targets, files, capture, &mut keeper);
    keeper.line.clear();
    let finished = match result {
        Ok(recorded) => keeper.finish(recorded, &plan.record)?,
        Err(error) => return Err(keeper.give_up(error)),
    };
    let summary = Summary::new(&plan, finished);
    tell(&plan, &summary)?;
    Ok(summary.outcome())
}

/// What is known of the capture before it begins.
fn capture_facts(plan: &Plan) -> Capture {
    let kinds = [
        (plan.record.on_cpu, CaptureKind::OnCpu),
        (plan.record.off_cpu, CaptureKind::OffCpu),
    ];
    Capture {
        kinds: kinds
            .into_iter()
            .filter_map(|(on, kind)| on.then_some(kind))
            .collect(),
        rate_hz: if plan.record.on_cpu {
            plan.record.rate_hz
        } else {
            0
        },
        tool: TOOL.to_owned(),
        ..Capture::default()
    }
}

/// Says what will have no name while something can still be done about it.
fn tell_nameless(plan: &Plan, targets: &[Process], files: &mut ProgramFiles) {
    // A command does not run yet, so nothing of it is mapped.
    if plan.voice.quiet || matches!(plan.subject, Subject::Command(_)) {
        return;
    }
    for line in nameless::remarks(targets, files) {
        plan.voice.remark(&format!("symbols  {line}"));
    }
}

/// Processes enter a cgroup from anywhere; those of a name come from their kin, which are followed.
fn rescan(plan: &Plan) -> Option<Rescan> {
    match &plan.subject {
        Subject::Running(selection) if selection.is_cgroup() && plan.record.follow_forks => {
            Some(Rescan::new(selection.clone()))
        }
        _ => None,
    }
}

/// The terminal belongs to the command while there is one.
fn progress_line(plan: &Plan) -> ProgressLine {
    let mut voice = plan.voice;
    voice.quiet |= matches!(plan.subject, Subject::Command(_));
    ProgressLine::new(voice, plan.record.duration)
}

/// Records; a process that ended between being found and being opened, or that may not be read, is left out, unless it was named
/// by itself.
fn record_living(
    plan: &Plan,
    targets: &[Process],
    files: ProgramFiles,
    capture: Capture,
    keeper: &mut CaseKeeper<'_>,
) -> Result<Recorded, RecordError> {
    let mut record_plan: RecordPlan = plan.record.clone();
    record_plan.pids = targets.iter().map(|target| target.pid).collect();
    loop {
        match record_with(files.clone(), &record_plan, capture.clone(), keeper) {
            Err(RecordError::Target {
                pid,
                source: MemoryError::Gone | MemoryError::Permission,
            }) if !plan.subject.is_exact() && record_plan.pids.len() > 1 => {
                record_plan.pids.retain(|&other| other != pid);
            }
            other => return other,
        }
    }
}

fn tell(plan: &Plan, summary: &Summary) -> Result<()> {
    if plan.voice.json {
        return output::json(&document::document(summary));
    }
    let text = text::text(summary, plan.voice);
    match plan.subject {
        // Standard output is the command's: somebody may be reading what it prints.
        Subject::Command(_) => plan.voice.remark(text.trim_end()),
        Subject::Running(_) => output::text(&text)?,
    }
    Ok(())
}
