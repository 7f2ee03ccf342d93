//! Starting a program so that it is recorded from its first instruction.
//!
//! This program is started a second time, with a hidden verb that waits at a gate (a pipe) and then becomes the command by
//! execve(2): the same process, which by then is recorded. The command gets the standard streams, the environment and the
//! process group as they are.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use throughline_host::Process;

use crate::args::RunWhenRecordedArgs;
use crate::failure::Outcome;
use crate::signals::{Arrival, Interrupts};
use crate::sys;
use crate::verbs::targets::Selection;

/// How often a running command is asked whether it has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A command that has been started, or waits to be.
pub struct Launched {
    child: Child,
    /// Open until the command may run.
    gate: Option<File>,
    ended: Option<ExitStatus>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnd {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
}

impl Launched {
    /// Starts the waiting process.
    pub fn start(command: &[OsString]) -> Result<Self> {
        let (inner, outer) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        // The only descriptor that the child gets beside the standard three.
        fcntl_setfd(&inner, FdFlags::empty()).context("cannot pass a pipe on")?;
        let child = Command::new("/proc/self/exe")
            .arg0("throughline")
            .arg("run-when-recorded")
            .arg(format!("--gate={}", inner.as_raw_fd()))
            .arg("--")
            .args(command)
            .spawn()
            .context("cannot start the process that becomes the command")?;
        Ok(Self {
            child,
            gate: Some(File::from(outer)),
            ended: None,
        })
    }

    /// The process to record.
    pub fn targets(&self) -> Result<Vec<Process>> {
        Ok(Selection::pids(vec![self.child.id()]).find()?)
    }

    /// Opens the gate.
    pub fn let_run(&mut self) {
        if let Some(mut gate) = self.gate.take() {
            // A child that is gone already is noticed by its end.
            let _ = gate.write_all(b"!");
        }
    }

    /// Whether the command has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            // An error means that the system has no such child: it has ended.
            self.ended = self.child.try_wait().unwrap_or(Some(ExitStatus::default()));
        }
        self.ended.is_some()
    }

    /// Passes a signal on, unless the terminal has sent it to the command too.
    pub fn pass_on(&self, arrival: Arrival) {
        if arrival.from_terminal || self.ended.is_some() {
            return;
        }
        if let (Some(signal), Some(pid)) = (
            Signal::from_named_raw(arrival.signal),
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw),
        ) {
            // It may end at this moment.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the command, which may outlive its recording; signals are passed on meanwhile.
    pub fn wait(mut self, interrupts: &mut Interrupts) -> Result<ProgramEnd> {
        while !self.has_ended() {
            for arrival in interrupts.arrivals() {
                self.pass_on(arrival);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        let status = self.ended.unwrap_or_default();
        Ok(ProgramEnd {
            exit_code: status.code(),
            signal: status.signal(),
        })
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            // The gate is closed for good, and the waiting process ends.
            let _ = self.child.wait();
        }
    }
}

/// The waiting process: becomes the command when the gate opens, ends when it closes.
pub fn run_when_recorded(args: RunWhenRecordedArgs) -> Result<Outcome> {
    let Some(gate) = sys::inherited(args.gate) else {
        bail!(
            "--gate {} is no descriptor that was passed on: this verb is for `record -- COMMAND`",
            args.gate
        );
    };
    if !opens(gate) {
        // The recorder has told its user why.
        return Ok(Outcome::Done);
    }
    let [program, arguments @ ..] = args.command.as_slice() else {
        bail!("there is no command to become");
    };
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Whether a byte comes through before the other end is closed. The descriptor is closed here: the command does not get it.
fn opens(gate: OwnedFd) -> bool {
    let mut byte = [0];
    matches!(File::from(gate).read(&mut byte), Ok(1))
}
