//! The processes that a user names.

use anyhow::{Context, ensure};
use throughline_host::{HostError, Process, Selector, find_processes};

use crate::args::TargetArgs;

/// Refuses to work with the process ids of another pid namespace: they would name other processes here.
pub fn proc_is_ours() -> anyhow::Result<()> {
    let shown =
        std::fs::read_link("/proc/self").context("cannot read /proc/self: is /proc mounted?")?;
    ensure!(
        shown.as_os_str() == std::process::id().to_string().as_str(),
        "/proc shows the processes of another pid namespace than this program runs in: mount a /proc of this namespace \
         (unshare --mount-proc) or run in that one (nsenter -t PID -p -m)"
    );
    Ok(())
}

/// A selection that can be made again: what it matches may change while it is watched.
#[derive(Clone, Debug)]
pub struct Selection(Selector);

impl From<TargetArgs> for Selection {
    fn from(args: TargetArgs) -> Self {
        Self(Selector {
            pids: args.pid,
            name: args.name,
            cgroup: args.cgroup,
        })
    }
}

impl Selection {
    /// These processes and no others.
    pub fn pids(pids: Vec<u32>) -> Self {
        Self(Selector {
            pids,
            ..Selector::default()
        })
    }

    /// The processes that it matches now.
    pub fn find(&self) -> Result<Vec<Process>, HostError> {
        find_processes(&self.0)
    }

    /// Whether each process was named by itself, so that all of them must be there.
    pub fn is_exact(&self) -> bool {
        !self.0.pids.is_empty()
    }

    /// Whether it is a cgroup, which processes may enter from anywhere.
    pub fn is_cgroup(&self) -> bool {
        self.0.cgroup.is_some()
    }
}
