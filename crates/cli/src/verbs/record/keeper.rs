//! Keeps a recording as it goes: the case file, the progress line, the reasons to stop.

use std::error::Error;
use std::time::{Duration, Instant};

use throughline_profile::{Capture, Profile};
use throughline_record::{Keeper, Progress, RecordError, RecordPlan, Recorded};
use throughline_store::{CaptureWriter, StoreError};

use super::case_file::CaseFile;
use super::counts::Counts;
use super::launch::{Launched, ProgramEnd};
use super::status_page::PageRequests;
use crate::output::ProgressLine;
use crate::signals::Interrupts;
use crate::verbs::targets::Selection;

/// How often the processes of a cgroup are listed again: it costs a few files for each of them.
const RESCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Why a recording was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its time.
    Time,
    /// SIGINT or SIGTERM.
    Signal,
    /// No target was left.
    TargetsEnded,
    /// The command that it started had ended.
    CommandEnded,
}

/// A recording that is in the file.
pub struct Finished {
    pub recorded: Recorded,
    pub counts: Counts,
    pub ended_by: EndedBy,
    pub program_end: Option<ProgramEnd>,
}

/// A selection that other processes may come to match.
pub struct Rescan {
    selection: Selection,
    last: Instant,
}

impl Rescan {
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            last: Instant::now(),
        }
    }

    fn pids_if_due(&mut self) -> Vec<u32> {
        if self.last.elapsed() < RESCAN_INTERVAL {
            return Vec::new();
        }
        self.last = Instant::now();
        // That none is left is for the recording to notice.
        let found = self.selection.find().unwrap_or_default();
        found.into_iter().map(|process| process.pid).collect()
    }
}

/// What a keeper looks after beside the file.
pub struct Watch {
    pub line: ProgressLine,
    pub interrupts: Interrupts,
    pub program: Option<Launched>,
    pub rescan: Option<Rescan>,
    pub requests: Option<PageRequests>,
}

/// The keeper of one recording.
pub struct CaseKeeper<'a> {
    pub line: ProgressLine,
    case: &'a CaseFile,
    facts: Capture,
    writer: Option<CaptureWriter>,
    /// Why there is no writer, after the attempt to have one.
    refused: Option<StoreError>,
    interrupts: Interrupts,
    program: Option<Launched>,
    rescan: Option<Rescan>,
    requests: Option<PageRequests>,
    counts: Counts,
    ended_by: Option<EndedBy>,
}

impl<'a> CaseKeeper<'a> {
    pub fn new(case: &'a CaseFile, facts: Capture, watch: Watch) -> Self {
        Self {
            line: watch.line,
            case,
            facts,
            writer: None,
            refused: None,
            interrupts: watch.interrupts,
            program: watch.program,
            rescan: watch.rescan,
            requests: watch.requests,
            counts: Counts::default(),
            ended_by: None,
        }
    }

    /// The writer; the capture begins when it is first asked for.
    fn writer(&mut self) -> Result<&mut CaptureWriter, StoreError> {
        if self.writer.is_none() {
            self.writer = Some(self.case.begin_capture(&self.facts)?);
        }
        // It was just made.
        self.writer
            .as_mut()
            .ok_or_else(|| StoreError::NoCapture(self.case.path().to_owned()))
    }

    /// A reason to end before the time is over.
    fn reason_to_end(&mut self) -> Option<EndedBy> {
        for arrival in self.interrupts.arrivals() {
            if let Some(program) = &self.program {
                program.pass_on(arrival);
            }
        }
        if self.interrupts.came() {
            return Some(EndedBy::Signal);
        }
        self.program
            .as_mut()
            .is_some_and(Launched::has_ended)
            .then_some(EndedBy::CommandEnded)
    }

    /// Completes the capture, and waits for the command when one was started.
    ///
    /// # Errors
    /// When the file cannot be written; what was flushed before is kept.
    pub fn finish(mut self, mut recorded: Recorded, plan: &RecordPlan) -> anyhow::Result<Finished> {
        if let Some(refused) = self.refused.take() {
            return Err(refused.into());
        }
        if let Some(requests) = &mut self.requests {
            recorded.profile.capture.requests = requests.finish();
        }
        let writer = self.writer()?;
        writer.finish(&mut recorded.profile)?;
        recorded.profile.capture.number = writer.number();
        let time_is_over = plan
            .duration
            .is_some_and(|length| Duration::from(recorded.profile.capture.duration) >= length);
        let ended_by = match self.ended_by {
            Some(reason) => reason,
            None if time_is_over => EndedBy::Time,
            // Its last process was gone before it was asked for.
            None if self.program.is_some() => EndedBy::CommandEnded,
            None => EndedBy::TargetsEnded,
        };
        let program_end = match self.program.take() {
            Some(program) => Some(program.wait(&mut self.interrupts)?),
            None => None,
        };
        Ok(Finished {
            recorded,
            counts: self.counts,
            ended_by,
            program_end,
        })
    }

    /// The error of a recording that failed: the first cause, and what of it is kept nonetheless.
    pub fn give_up(mut self, error: RecordError) -> anyhow::Error {
        let cause = match (error, self.refused.take()) {
            (_, Some(refused)) => anyhow::Error::from(refused),
            (RecordError::Keeper(cause), None) => match cause.downcast::<StoreError>() {
                Ok(cause) => anyhow::Error::from(*cause),
                Err(cause) => anyhow::anyhow!(cause),
            },
            (error, None) => anyhow::Error::from(error),
        };
        if matches!(cause.downcast_ref(), Some(StoreError::NotInPlace(_))) {
            return cause;
        }
        let kept = self.counts.on_cpu.samples + self.counts.off_cpu.samples;
        match self.writer {
            Some(writer) if kept > 0 => cause.context(format!(
                "the recording ended early; capture {} in {} keeps its first {kept} samples",
                writer.number(),
                self.case.path().display()
            )),
            _ => cause,
        }
    }
}

impl Keeper for CaseKeeper<'_> {
    fn flush(&mut self, profile: &mut Profile) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let Some(requests) = &self.requests {
            profile.capture.requests = requests.so_far();
        }
        let mut counts = self.counts.clone();
        counts.add(profile);
        self.writer()?.flush(profile)?;
        // Only what is in the file counts: after an error the same samples come again.
        self.counts = counts;
        Ok(())
    }

    fn go_on(&mut self, progress: Progress) -> bool {
        if let Err(refused) = self.writer() {
            self.refused = Some(refused);
            return false;
        }
        if let Some(requests) = &mut self.requests {
            requests.begin();
        }
        if let Some(program) = &mut self.program {
            // Called for the first time once everything is attached.
            program.let_run();
        }
        self.line.show(
            progress.elapsed.into(),
            &format!(
                "{} kept, {} lost, {} processes",
                progress.kept, progress.lost, progress.targets
            ),
        );
        self.ended_by = self.reason_to_end();
        self.ended_by.is_none()
    }

    fn targets_now(&mut self) -> Vec<u32> {
        self.rescan
            .as_mut()
            .map(Rescan::pids_if_due)
            .unwrap_or_default()
    }
}
