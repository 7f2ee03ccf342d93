//! The load as a child process: plan in, messages out.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::LabError;
use crate::load::{LoadPlan, LoadResult, ServeMessage};
use crate::sys;

/// Connecting is a matter of milliseconds on loopback.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The load waits five seconds for responses on their way; more than that is a hang.
const RESULT_LIMIT: Duration = Duration::from_secs(8);

/// The command that runs [`crate::load::serve`] on its standard input and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadCommand {
    /// The program, usually the caller itself.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The running load. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Loader {
    child: Child,
    /// Open for as long as the load is to run.
    input: Option<ChildStdin>,
    messages: Receiver<ServeMessage>,
    plan: LoadPlan,
}

impl Loader {
    /// Starts the child and waits until its connections stand.
    pub(super) fn start(command: &LoadCommand, plan: LoadPlan) -> Result<Self, LabError> {
        let failed = |reason: String| LabError::LoadFailed {
            address: plan.address,
            reason,
        };
        let mut child_command = Command::new(&command.program);
        child_command
            .args(&command.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0);
        sys::signal_on_parent_death(&mut child_command, sys::SIGKILL);
        let mut child = child_command
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", command.program.display())))?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, messages) = mpsc::channel();
        if let Some(output) = output {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Ok(message) = serde_json::from_str(&line) else {
                        continue;
                    };
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        let mut loader = Self {
            child,
            input,
            messages,
            plan,
        };
        loader.send_plan()?;
        match loader.messages.recv_timeout(START_LIMIT) {
            Ok(ServeMessage::Started) => Ok(loader),
            other => Err(loader.unexpected(other)),
        }
    }

    fn send_plan(&mut self) -> Result<(), LabError> {
        let sent = serde_json::to_string(&self.plan)
            .map_err(std::io::Error::from)
            .and_then(|line| match &mut self.input {
                Some(input) => writeln!(input, "{line}"),
                None => Err(std::io::ErrorKind::BrokenPipe.into()),
            });
        sent.map_err(|error| LabError::LoadFailed {
            address: self.plan.address,
            reason: format!("it does not take its plan: {error}"),
        })
    }

    fn unexpected(&mut self, got: Result<ServeMessage, RecvTimeoutError>) -> LabError {
        let reason = match got {
            Ok(ServeMessage::Failed(reason)) => reason,
            Ok(message) => format!("out of turn it said {message:?}"),
            Err(RecvTimeoutError::Timeout) => "it says nothing".to_owned(),
            Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) => format!("it ended with {status} before it said anything"),
                Err(error) => error.to_string(),
            },
        };
        LabError::LoadFailed {
            address: self.plan.address,
            reason,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The result, if the load has ended within `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<LoadResult>, LabError> {
        match self.messages.recv_timeout(limit) {
            Ok(ServeMessage::Result(result)) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            other => Err(self.unexpected(other)),
        }
    }

    /// Ends the load and takes its result.
    pub(super) fn finish(&mut self) -> Result<LoadResult, LabError> {
        self.input = None;
        match self.wait(RESULT_LIMIT)? {
            Some(result) => Ok(result),
            None => Err(self.unexpected(Err(RecvTimeoutError::Timeout))),
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
