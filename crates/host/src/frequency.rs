//! Clock frequency and governor of each core: /sys/devices/system/cpu/cpuN/cpufreq.

use serde::Serialize;

use crate::{
    absence::{Absence, Reading},
    files::{Roots, number},
};

/// A core's clock at the end of the window. A moment's reading, not a mean over the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreFrequency {
    /// Number of the core.
    pub core: u32,
    /// `performance`, `powersave`, `schedutil`, ...
    pub governor: String,
    /// What the driver says it runs at.
    pub current_khz: u64,
    /// The most the hardware allows.
    pub max_khz: u64,
}

/// Reads all the given cores. Absent as a whole when the first has no cpufreq (most virtual machines).
pub(crate) fn read(roots: &Roots, cores: impl Iterator<Item = u32>) -> Reading<Vec<CoreFrequency>> {
    cores
        .map(|core| {
            let folder = format!("devices/system/cpu/cpu{core}/cpufreq");
            let khz = |file: &str| {
                let path = format!("{folder}/{file}");
                number(roots.sys_file(&path)?.trim_ascii())
                    .ok_or_else(|| Absence::damaged(&path, "not a number"))
            };
            Ok(CoreFrequency {
                core,
                governor: roots.sys_value(&format!("{folder}/scaling_governor"))?,
                current_khz: khz("scaling_cur_freq")?,
                max_khz: khz("cpuinfo_max_freq")?,
            })
        })
        .collect()
}
