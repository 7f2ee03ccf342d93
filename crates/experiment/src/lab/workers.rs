//! The workers of a running nginx: which processes they are, and the CPU they have used.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::sys;

/// The children of process `parent`, ascending. Empty when it is gone.
pub(super) fn children_of(parent: u32) -> Vec<u32> {
    let mut children = match fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        Ok(text) => text
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect(),
        // Kernels without CONFIG_PROC_CHILDREN have no such file.
        Err(_) => scan_for_children(parent),
    };
    children.retain(|&child| is_alive(child));
    children.sort_unstable();
    children
}

fn scan_for_children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| stat(pid).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: u32,
    /// Clock ticks from boot to its start; with the pid it names one process for good.
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the command in parentheses and may itself hold any character, so the fields
/// are counted from the last closing parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // starttime is field 22, and field 4 was read last.
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        start_ticks,
    })
}

/// Whether `pid` runs. An exited nginx can stay as a zombie, with its /proc entry, until somebody
/// waits for it.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, b'Z' | b'X'))
}

/// A process that cannot be mistaken for a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    pid: u32,
    start_ticks: u64,
}

impl ProcessIdentity {
    pub(super) fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| Self {
            pid,
            start_ticks: stat.start_ticks,
        })
    }

    pub(super) fn is_alive(self) -> bool {
        is_alive(self.pid) && Self::of(self.pid) == Some(self)
    }

    /// Sends `signal` if this very process still runs.
    pub(super) fn signal(self, signal: i32) {
        if self.is_alive() {
            // An error means that it has ended since, which is what was wanted.
            let _ = sys::send_signal(self.pid, signal);
        }
    }
}

/// CPU time of the workers since the meter was made. Reloads replace workers, so it must be updated
/// while the old ones still run: what a worker used after the last update before its end is lost.
#[derive(Debug)]
pub(super) struct CpuMeter {
    master: u32,
    /// Worker to (CPU time when first seen, CPU time when last seen).
    readings: BTreeMap<u32, (Duration, Duration)>,
}

impl CpuMeter {
    pub(super) fn start(master: u32) -> Self {
        let readings = children_of(master)
            .into_iter()
            .filter_map(|pid| sys::process_cpu_time(pid).ok().map(|now| (pid, (now, now))))
            .collect();
        Self { master, readings }
    }

    pub(super) fn update(&mut self) {
        for pid in children_of(self.master) {
            if let Ok(now) = sys::process_cpu_time(pid) {
                // A worker that was not there at the start has begun at zero.
                self.readings.entry(pid).or_insert((Duration::ZERO, now)).1 = now;
            }
        }
    }

    /// CPU time by worker.
    pub(super) fn used(&self) -> Vec<Duration> {
        self.readings
            .values()
            .map(|(first, last)| last.saturating_sub(*first))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_looks_like_fields_does_not_confuse_the_parser() {
        let text = "7 (a) Z 1 (b)) S 42 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 0";
        let expected = Stat {
            state: b'S',
            parent: 42,
            start_ticks: 98765,
        };
        assert_eq!(parse_stat(text), Some(expected));
        for damaged in ["", "7 (a", "7 (a)", "7 (a) S", "7 (a) S x"] {
            assert_eq!(parse_stat(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn children_are_found_with_and_without_the_kernels_list() {
        let mut child = std::process::Command::new("sleep")
            .arg("10")
            .spawn()
            .unwrap();
        let me = std::process::id();
        assert!(
            children_of(me).contains(&child.id()) || scan_for_children(me).contains(&child.id())
        );
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }
}
