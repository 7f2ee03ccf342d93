//! The processes that a user names.

use throughline_host::{HostError, Process, Selector, find_processes};

use crate::args::TargetArgs;

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
