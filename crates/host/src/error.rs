//! Errors of finding processes and of starting to sample. All of them are the user's or the
//! environment's to mend; a process that ends during the window is no error but an observation.

/// Why no process was found, or why sampling could not begin.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The selector names nothing.
    #[error("nothing was selected: give a pid, a name or a cgroup")]
    EmptySelector,
    /// A pid that /proc does not show.
    #[error(
        "no process has pid {pid} in this /proc{hint}: check the number, and that it is the pid as seen from this pid namespace"
    )]
    NoSuchPid {
        /// The number asked for.
        pid: u32,
        /// Empty, or that /proc hides other users' processes.
        hint: &'static str,
    },
    /// The number is a thread.
    #[error("{tid} is a thread of process {process}: give --pid {process}")]
    ThreadNotProcess {
        /// The number asked for.
        tid: u32,
        /// The process it belongs to.
        process: u32,
    },
    /// No process has this name.
    #[error(
        "no process is named {name:?} ({looked_at} looked at, by comm and by executable){hint}: try `ps -eo pid,comm,exe`"
    )]
    NoSuchName {
        /// The name asked for.
        name: String,
        /// How many processes were compared.
        looked_at: usize,
        /// Empty, or that /proc hides other users' processes.
        hint: &'static str,
    },
    /// The cgroup is not there.
    #[error("no cgroup {path:?}: looked for it as given and under {looked_in}")]
    NoSuchCgroup {
        /// The path asked for.
        path: String,
        /// The hierarchies searched.
        looked_in: String,
    },
    /// The cgroup is there and holds nothing.
    #[error("cgroup {path:?} and the cgroups below it hold no process")]
    EmptyCgroup {
        /// The path asked for.
        path: String,
    },
    /// Each criterion matches something, together they match nothing.
    #[error("no process satisfies all of the given pid, name and cgroup")]
    NothingInCommon,
    /// /proc itself cannot be listed.
    #[error("cannot list {path}: {source}; is /proc mounted?")]
    ProcUnreadable {
        /// The folder.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The sampling plan cannot be carried out.
    #[error("cannot sample: {0}")]
    BadPlan(&'static str),
}
