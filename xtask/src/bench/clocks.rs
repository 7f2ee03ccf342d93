//! A recorder's sampling clocks, switched on and off from outside while it goes on.

use std::fs;
use std::os::fd::{OwnedFd, RawFd};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::proc::PERF_EVENT;
use super::sys;

/// The perf events of one process, as descriptors of ours (pidfd_getfd(2) needs the right to trace it).
pub struct Clocks(Vec<OwnedFd>);

impl Clocks {
    pub fn of_process(pid: u32) -> Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pidfd_open(raw.context("no process id")?, PidfdFlags::empty())?;
        let mut events = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let is_event = fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == PERF_EVENT);
            let number = entry.file_name().to_string_lossy().parse::<RawFd>();
            if let (true, Ok(number)) = (is_event, number) {
                events.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
            }
        }
        ensure!(!events.is_empty(), "process {pid} has no sampling clock");
        Ok(Self(events))
    }

    pub fn switch(&self, on: bool) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|event| sys::switch(event, on))
            .context("cannot switch a sampling clock")
    }
}
