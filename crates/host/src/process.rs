//! Finding the processes a user names.

use std::path::PathBuf;

use crate::{
    absence::{Absence, Reading},
    cgroup,
    error::HostError,
    files::Roots,
    name::printable,
    task::{Stat, Status},
};

/// The kernel keeps 15 bytes of a name (`TASK_COMM_LEN` is 16 with the terminating zero).
const COMM_BYTES: usize = 15;

/// What the user named. Several criteria narrow each other; at least one is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// These processes, each of which must exist.
    pub pids: Vec<u32>,
    /// Processes whose comm (its 15 bytes) or executable's file name is this.
    pub name: Option<String>,
    /// Processes in this cgroup or below it: a path as in /proc/PID/cgroup, or a folder of cgroupfs.
    pub cgroup: Option<String>,
}

/// A process as /proc shows it at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// As seen from this /proc.
    pub pid: u32,
    /// Its name, made safe to print.
    pub comm: String,
    /// Its executable, without the kernel's ` (deleted)`; the path is of its own mount namespace.
    pub exe: Reading<PathBuf>,
    /// The executable was replaced or removed since (an upgrade without a restart).
    pub exe_deleted: bool,
    /// Pid of the parent.
    pub parent: u32,
    /// Clock ticks since boot: with the pid it names one process for ever.
    pub start_ticks: u64,
    /// Its cgroup in each hierarchy: controllers (empty for v2) and path.
    pub cgroups: Reading<Vec<(String, String)>>,
    /// How many threads it has.
    pub threads: u32,
}

/// Finds the processes that satisfy every given criterion, by pid ascending. Never this process, unless by pid.
///
/// # Errors
/// Nothing selected, nothing found (each with what was looked for), or /proc cannot be listed.
pub fn find_processes(selector: &Selector) -> Result<Vec<Process>, HostError> {
    find_below(&Roots::live(), selector)
}

pub(crate) fn find_below(roots: &Roots, selector: &Selector) -> Result<Vec<Process>, HostError> {
    let hint = visibility_hint(roots);
    let mut wanted: Option<Vec<u32>> = None;
    if !selector.pids.is_empty() {
        for &pid in &selector.pids {
            must_be_process(roots, pid, hint)?;
        }
        wanted = Some(selector.pids.clone());
    }
    if let Some(path) = &selector.cgroup {
        let members = cgroup::members(roots, path)?;
        wanted = Some(narrow(wanted, members));
    }
    if let Some(name) = &selector.name {
        let named = named(roots, name, hint)?;
        wanted = Some(narrow(wanted, named));
    }
    let mut pids = wanted.ok_or(HostError::EmptySelector)?;
    pids.sort_unstable();
    pids.dedup();
    let found: Vec<Process> = pids
        .into_iter()
        .filter_map(|pid| describe(roots, pid).ok())
        .collect();
    if found.is_empty() {
        Err(HostError::NothingInCommon)
    } else {
        Ok(found)
    }
}

fn narrow(wanted: Option<Vec<u32>>, more: Vec<u32>) -> Vec<u32> {
    match wanted {
        None => more,
        Some(wanted) => wanted
            .into_iter()
            .filter(|pid| more.contains(pid))
            .collect(),
    }
}

/// A mount of /proc with hidepid shows only one's own processes; then pid 1 is missing for all but root.
fn visibility_hint(roots: &Roots) -> &'static str {
    if roots.proc_file("1/stat").is_ok() {
        ""
    } else {
        " (this /proc hides processes of other users: hidepid; try as root)"
    }
}

/// /proc/TID opens for any thread although it is not listed, so the number is checked to be a process's.
fn must_be_process(roots: &Roots, pid: u32, hint: &'static str) -> Result<(), HostError> {
    let no_such = HostError::NoSuchPid { pid, hint };
    let Ok(bytes) = roots.proc_file(&format!("{pid}/status")) else {
        return Err(no_such);
    };
    match Status::parse(&bytes).process {
        Ok(process) if process != pid => Err(HostError::ThreadNotProcess { tid: pid, process }),
        _ => Ok(()),
    }
}

/// All pids /proc lists.
pub(crate) fn all_pids(roots: &Roots) -> Result<Vec<u32>, HostError> {
    let path = roots.proc.display().to_string();
    let entries = std::fs::read_dir(&roots.proc)
        .map_err(|source| HostError::ProcUnreadable { path, source })?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

fn named(roots: &Roots, name: &str, hint: &'static str) -> Result<Vec<u32>, HostError> {
    let all = all_pids(roots)?;
    let looked_at = all.len();
    let mut found = Vec::new();
    for pid in all {
        if pid != std::process::id() && has_name(roots, pid, name.as_bytes()) {
            found.push(pid);
        }
    }
    if found.is_empty() {
        return Err(HostError::NoSuchName {
            name: printable(name.as_bytes()),
            looked_at,
            hint,
        });
    }
    Ok(found)
}

fn has_name(roots: &Roots, pid: u32, name: &[u8]) -> bool {
    let comm = roots
        .proc_file(&format!("{pid}/stat"))
        .ok()
        .and_then(|bytes| Some(Stat::parse(&bytes).ok()?.comm));
    let short = name.get(..COMM_BYTES).unwrap_or(name);
    if comm.as_deref() == Some(short) && name.len() <= COMM_BYTES {
        return true;
    }
    // A longer name is cut in comm, and two programs may share the cut; the executable decides, and
    // where it cannot be read the cut has to do.
    match exe(roots, pid) {
        Ok((path, _)) => path
            .file_name()
            .is_some_and(|file| file.as_encoded_bytes() == name),
        Err(_) => comm.as_deref() == Some(short),
    }
}

fn exe(roots: &Roots, pid: u32) -> Reading<(PathBuf, bool)> {
    let link = roots.proc.join(format!("{pid}/exe"));
    let path = std::fs::read_link(&link)
        .map_err(|error| Absence::from_io(&format!("/proc/{pid}/exe"), &error))?;
    match path
        .to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"))
    {
        Some(kept) => Ok((PathBuf::from(kept), true)),
        None => Ok((path, false)),
    }
}

/// Reads one process.
pub(crate) fn describe(roots: &Roots, pid: u32) -> Reading<Process> {
    let what = format!("/proc/{pid}/stat");
    let stat = Stat::parse(&roots.proc_file(&format!("{pid}/stat"))?)
        .map_err(|problem| Absence::damaged(&what, problem))?;
    let (exe, exe_deleted) = match exe(roots, pid) {
        Ok((path, deleted)) => (Ok(path), deleted),
        Err(absence) => (Err(absence), false),
    };
    Ok(Process {
        pid,
        comm: printable(&stat.comm),
        exe,
        exe_deleted,
        parent: stat.parent,
        start_ticks: stat.start_ticks,
        cgroups: roots
            .proc_file(&format!("{pid}/cgroup"))
            .map(|bytes| cgroup::parse(&bytes)),
        threads: stat.threads,
    })
}

#[cfg(test)]
mod tests;
