//! What to record, checked before anything is started or opened.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use rustix::fs::{Access, access};
use throughline_record::RecordPlan;

use super::status_page::StatusPage;
use crate::args::RecordArgs;
use crate::output::{self, Voice};
use crate::verbs::targets::Selection;

/// A recording as it will be made.
pub struct Plan {
    pub subject: Subject,
    /// Without the process ids, which are found last.
    pub record: RecordPlan,
    pub case: PathBuf,
    /// Where to ask for the number of requests, instead of counting them.
    pub requests_from: Option<StatusPage>,
    pub voice: Voice,
}

/// Whom to record.
pub enum Subject {
    /// Processes that run already.
    Running(Selection),
    /// A program that is started for it.
    Command(Vec<OsString>),
}

impl Subject {
    /// Whether all of it must be there.
    pub fn is_exact(&self) -> bool {
        match self {
            Self::Running(selection) => selection.is_exact(),
            Self::Command(_) => true,
        }
    }
}

impl Plan {
    /// # Errors
    /// When the options contradict each other, are beyond what is safe, or name a program that is not there.
    pub fn new(args: RecordArgs) -> Result<Self> {
        let voice = Voice::from(&args.voice);
        let defaults = RecordPlan::default();
        let is_command = !args.command.is_empty();
        let record = RecordPlan {
            pids: Vec::new(),
            on_cpu: args.on_cpu || !args.off_cpu,
            off_cpu: args.off_cpu || !args.on_cpu,
            rate_hz: args.rate,
            duration: if is_command {
                args.length
            } else {
                args.length.or(defaults.duration)
            },
            min_block: args.min_block,
            max_block: args.max_block,
            stack_bytes: args.stack_bytes.unwrap_or(defaults.stack_bytes),
            count_requests: args.requests_from.is_none() && !args.no_requests,
            follow_forks: !args.no_follow,
            beyond_safe: args.beyond_safe,
        };
        ensure!(
            !output::is_stdout(&args.output),
            "a case file cannot go to standard output: name a file with --output"
        );
        // What is allowed and worth a warning comes back with the capture.
        record.check()?;
        let requests_from = args
            .requests_from
            .as_deref()
            .map(StatusPage::parse)
            .transpose()?;
        let subject = if is_command {
            must_be_program(&args.command[0])?;
            Subject::Command(args.command)
        } else {
            Subject::Running(Selection::from(args.target))
        };
        Ok(Self {
            subject,
            record,
            case: args.output,
            requests_from,
            voice,
        })
    }
}

/// Refuses a command that cannot be started, by the rules of execvp(3).
fn must_be_program(program: &OsStr) -> Result<()> {
    let is_program = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        if is_program(path) {
            return Ok(());
        }
        bail!(
            "cannot start {}: it is not there, or not an executable file",
            path.display()
        );
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&search).any(|directory| is_program(&directory.join(program))) {
        return Ok(());
    }
    bail!(
        "cannot start {}: there is no such program in PATH",
        Path::new(program).display()
    )
}
