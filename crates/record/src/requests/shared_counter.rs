//! nginx's own count of requests, read from a worker's memory: it costs the target nothing.
//!
//! nginx that is built with stub_status exports the pointer `ngx_stat_requests` (src/event/ngx_event.c), which points into memory that
//! all workers of a master share, from the master's start to its end, reloads included. `ngx_http_create_request`
//! (src/http/ngx_http_request.c) adds one for each main request. The count is of all workers together, so it answers for the
//! recorded processes only when they are all workers of their masters.

use std::collections::{BTreeMap, HashMap};

use throughline_target::Memory;

use crate::process::{self, Process};

/// The exported pointer.
pub const POINTER: &str = "ngx_stat_requests";

/// A counter at one time: where it lies in the processes that share it, and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Address.
    pub address: u64,
    /// Requests since the master's start.
    pub count: u64,
}

/// The counters of the recorded processes by master.
///
/// # Errors
/// Why they do not count what the recorded processes do, as a sentence.
pub fn read(processes: &HashMap<u32, Process>) -> Result<BTreeMap<u32, Reading>, String> {
    if processes.is_empty() {
        return Err(format!(
            "all recorded processes ended before {POINTER} could be read a last time"
        ));
    }
    let workers = by_master(processes);
    if workers.is_empty() {
        return Err(format!("no recorded program exports {POINTER}"));
    }
    let mut readings = BTreeMap::new();
    for (&master, recorded) in &workers {
        if let Some(other) = unrecorded_worker(master, processes)? {
            return Err(format!(
                "{POINTER} counts all workers of master {master}, and process {other} of them is not recorded"
            ));
        }
        // A new master that an upgrade has started is a child of the old one, and has a counter of its own.
        let reader = recorded
            .iter()
            .find(|reader| !workers.contains_key(&reader.memory.pid()))
            .or(recorded.first())
            .ok_or_else(|| format!("no process of master {master} is left"))?;
        readings.insert(master, reading(reader)?);
    }
    Ok(readings)
}

/// Requests between two readings.
///
/// # Errors
/// Why there is no telling, as a sentence.
pub fn between(
    first: &BTreeMap<u32, Reading>,
    last: &BTreeMap<u32, Reading>,
) -> Result<u64, String> {
    if !first.keys().eq(last.keys()) {
        return Err(format!(
            "the recorded processes had other masters at the end than at the beginning, so {POINTER} has no beginning or no end"
        ));
    }
    let mut count = 0_u64;
    for (first, last) in first.values().zip(last.values()) {
        let grown = last.count.checked_sub(first.count);
        let Some(grown) = grown.filter(|_| first.address == last.address) else {
            return Err(format!("{POINTER} ran backwards or was moved"));
        };
        count = count.saturating_add(grown);
    }
    Ok(count)
}

/// The recorded processes whose program has the counter. The master is the parent when that runs the same program; else the process
/// is one itself, or the only one.
fn by_master(processes: &HashMap<u32, Process>) -> BTreeMap<u32, Vec<&Process>> {
    let mut masters: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
    for (&pid, process) in processes {
        if address_of_pointer(process).is_none() {
            continue;
        }
        let parent = process::parent(pid);
        let is_worker = parent > 1 && process::exe(parent) == process.facts.exe;
        let master = if is_worker { parent } else { pid };
        masters.entry(master).or_default().push(process);
    }
    masters
}

/// A live child of a master that runs the master's program and is not recorded.
fn unrecorded_worker(
    master: u32,
    processes: &HashMap<u32, Process>,
) -> Result<Option<u32>, String> {
    let program = process::exe(master);
    // The master has one thread.
    let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"))
        .map_err(|error| format!("the workers of master {master} cannot be listed: {error}"))?;
    Ok(children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(|pid| !processes.contains_key(pid) && process::exe(*pid) == program))
}

fn address_of_pointer(process: &Process) -> Option<u64> {
    let (image, bias) = super::program_of(process)?;
    Some(image.address_of_export(POINTER)?.wrapping_add(bias))
}

fn reading(process: &Process) -> Result<Reading, String> {
    let pid = process.memory.pid();
    let unreadable = |what: &str, error| format!("{what} of process {pid} cannot be read: {error}");
    let pointer = address_of_pointer(process).ok_or_else(|| format!("{POINTER} is gone"))?;
    let address = process
        .memory
        .read_u64(pointer)
        .map_err(|error| unreadable(POINTER, error))?;
    let count = process
        .memory
        .read_u64(address)
        .map_err(|error| unreadable("what ngx_stat_requests points to", error))?;
    Ok(Reading { address, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64, count: u64) -> Reading {
        Reading { address, count }
    }

    #[test]
    fn targets_that_have_all_ended_are_the_reason() {
        let reason = read(&HashMap::new()).expect_err("nothing to read");
        assert!(reason.contains("ended"), "{reason}");
    }

    #[test]
    fn counters_of_several_masters_add_up() {
        let first = BTreeMap::from([(10, at(0x1000, 7)), (20, at(0x2000, 0))]);
        let last = BTreeMap::from([(10, at(0x1000, 17)), (20, at(0x2000, 5))]);
        assert_eq!(between(&first, &last), Ok(15));
    }

    #[test]
    fn a_counter_that_runs_backwards_or_moves_or_changes_its_master_is_no_count() {
        let first = BTreeMap::from([(10, at(0x1000, 7))]);
        for last in [
            BTreeMap::from([(10, at(0x1000, 6))]),
            BTreeMap::from([(10, at(0x1008, 9))]),
            BTreeMap::from([(11, at(0x1000, 9))]),
            BTreeMap::new(),
        ] {
            assert!(between(&first, &last).is_err(), "{last:?}");
        }
    }
}
