//! What `/proc` tells about a process. Formats: proc(5), Documentation/scheduler/sched-stats.rst.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

/// Scheduler's account of a process's main thread.
///
/// The kernel brings it up to date when the thread leaves its core, so it is exact only while the thread sleeps: read it
/// before and after a load, not in the middle.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedStat {
    pub cpu_ns: u64,
    pub run_delay_ns: u64,
}

impl SchedStat {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/schedstat");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let mut fields = text.split_ascii_whitespace().map(str::parse);
        match (fields.next(), fields.next()) {
            (Some(Ok(cpu_ns)), Some(Ok(run_delay_ns))) => Ok(Self {
                cpu_ns,
                run_delay_ns,
            }),
            _ => anyhow::bail!("{path} holds {text:?}"),
        }
    }
}

/// Writes of a process since it began, as `/proc/PID/io` counts them (`syscw`). A gateway answers every request with the same
/// number of them, so they tell what it has done at any moment without asking it.
pub struct Writes(File);

impl Writes {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/io");
        Ok(Self(File::open(&path).context(path)?))
    }

    pub fn now(&self) -> Result<u64> {
        let mut text = [0; 512];
        let length = self.0.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        text.lines()
            .find_map(|line| line.strip_prefix("syscw: ")?.parse().ok())
            .with_context(|| format!("/proc/PID/io holds {text:?}"))
    }
}

/// CPU time of a whole process, ended threads included, and whether it has ended (a zombie still tells its CPU time).
#[derive(Clone, Copy, Debug)]
pub struct ProcessCpu {
    pub seconds: f64,
    pub ended: bool,
}

impl ProcessCpu {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        Self::parse(&text).with_context(|| format!("{path} holds {text:?}"))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything, also parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Fields 3, 14 and 15 of proc(5): state, utime, stime.
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let state = fields.first()?;
        let total = ticks(11)? + ticks(12)?;
        Some(Self {
            seconds: total as f64 / rustix::param::clock_ticks_per_second() as f64,
            ended: matches!(*state, "Z" | "X"),
        })
    }
}

/// Memory of a process, in bytes. It is gone as soon as the process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub peak: u64,
    pub anonymous: u64,
    pub file: u64,
    pub shared: u64,
}

impl Memory {
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            let kilobytes: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
            Some(kilobytes * 1024)
        };
        Some(Self {
            peak: bytes("VmHWM:")?,
            anonymous: bytes("RssAnon:")?,
            file: bytes("RssFile:")?,
            shared: bytes("RssShmem:")?,
        })
    }
}

/// Memory that the kernel holds for the BPF maps of a process, in bytes, each map once.
pub fn bpf_map_bytes(pid: u32) -> u64 {
    let maps = descriptors(pid)
        .into_iter()
        .filter_map(|text| Some((number(&text, "map_id:")?, number(&text, "memlock:")?)));
    maps.collect::<BTreeMap<_, _>>().values().sum()
}

/// Time that the tracing programs of a process (those at the scheduler's tracepoints, not those of its clocks) have run on all
/// cores, in ns, each program once, while [`BpfStatistics`] were on.
pub fn tracing_program_ns(pid: u32) -> u64 {
    /// BPF_PROG_TYPE_TRACING (include/uapi/linux/bpf.h).
    const TRACING: u64 = 26;
    let programs = descriptors(pid)
        .into_iter()
        .filter(|text| number(text, "prog_type:") == Some(TRACING))
        .filter_map(|text| Some((number(&text, "prog_id:")?, number(&text, "run_time_ns:")?)));
    programs.collect::<BTreeMap<_, _>>().values().sum()
}

/// What the kernel tells about each open file of a process; nothing when it is gone.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let texts = entries.into_iter().flatten().flatten();
    texts
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .collect()
}

/// The number behind a key at the begin of a line.
fn number(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().parse().ok()
}

/// Has the kernel count the run time of BPF programs (Documentation/admin-guide/sysctl/kernel.rst, bpf_stats_enabled) until it
/// is dropped.
pub struct BpfStatistics {
    before: String,
}

impl BpfStatistics {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(Self::SWITCH).context(Self::SWITCH)?;
        fs::write(Self::SWITCH, "1").context(Self::SWITCH)?;
        Ok(Self { before })
    }
}

impl Drop for BpfStatistics {
    fn drop(&mut self) {
        // It could be written a moment ago.
        let _ = fs::write(Self::SWITCH, &self.before);
    }
}

/// How the kernel calls what `perf_event_open` returns.
pub const PERF_EVENT: &str = "anon_inode:[perf_event]";

/// Whether a process has sampling clocks open.
pub fn has_perf_event(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|entries| {
        entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target.as_os_str() == PERF_EVENT)
    })
}

/// Whether a process has mapped the buffers of its sampling clocks, which perf does last; it opens events before only to try
/// what the kernel can do.
pub fn maps_perf_event(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(PERF_EVENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) Z 1 (b)) S 1 1 1 0 -1 0 10 0 0 0 150 50 0 0 20 0 1 0";
        let cpu = ProcessCpu::parse(stat).expect("well formed");
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert!((cpu.seconds - 200.0 / ticks).abs() < 1e-9);
        assert!(!cpu.ended);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    1024 kB\nRssAnon:\t 512 kB\nRssFile:\t 256 kB\nRssShmem:\t 4 kB\n";
        let memory = Memory::parse(status).expect("all there");
        assert_eq!(memory.peak, 1 << 20);
        assert_eq!(
            (memory.anonymous, memory.file, memory.shared),
            (512 << 10, 256 << 10, 4 << 10)
        );
    }
}
