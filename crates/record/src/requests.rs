//! Requests that the targets take while they are recorded, counted without configuration in the target.
//!
//! Where every worker of an nginx is recorded, and nginx is built with stub_status, its own counter is read (`shared_counter`).
//!
//! Otherwise by a probe: nginx gives every main request back in `ngx_http_free_request` (src/http/ngx_http_request.c), which it exports for
//! its modules. A probe there adds to a counter of its core for recorded processes, and costs one trap a request as long as the recording
//! lasts: 2 to 3 us on the virtual machine where it was measured, which the samples show as the kernel's `tracing`.
//!
//! Subrequests are counted by neither. nginx's counter has a request that is still under way at the end, the probe one that was
//! under way at the beginning; what a client sent before the first byte of a valid request line counts for both.

mod shared_counter;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use throughline_profile::RequestCount;

use self::shared_counter::Reading;
use crate::image::Image;
use crate::plan::RecordPlan;
use crate::process::Process;
use crate::programs::Programs;

/// The function whose calls are counted.
const FUNCTION: &str = "ngx_http_free_request";

/// What counts in one recording, and why nothing does.
pub struct Requests {
    wanted: bool,
    /// nginx's own counters at the beginning; then there is no probe.
    first: Option<BTreeMap<u32, Reading>>,
    /// What they have counted since.
    counted: Result<u64, String>,
    /// Device and inode of the programs that were looked at.
    seen: HashSet<(u64, u64)>,
    probes: usize,
    reason: String,
}

impl Requests {
    /// Begins with nginx's own counters when they count what these processes do, else without a probe yet; with neither when the plan
    /// does not want it.
    #[must_use]
    pub fn begin(plan: &RecordPlan, processes: &HashMap<u32, Process>) -> Self {
        let exports_function = format!(
            "no recorded program exports {FUNCTION}: it is no nginx, or one without exports"
        );
        let first = (plan.count_requests && all_have_counters(processes))
            .then(|| shared_counter::read(processes).ok())
            .flatten();
        Self {
            wanted: plan.count_requests,
            first,
            counted: Ok(0),
            seen: HashSet::new(),
            probes: 0,
            reason: if plan.count_requests {
                exports_function
            } else {
                "not asked for".to_owned()
            },
        }
    }

    /// Reads nginx's own counters again, where they count.
    pub fn read(&mut self, processes: &HashMap<u32, Process>) {
        if let Some(first) = &self.first {
            self.counted = shared_counter::read(processes)
                .and_then(|last| shared_counter::between(first, &last));
        }
    }

    /// Puts a probe on a process's program, unless that has one or nginx counts itself.
    pub fn watch(&mut self, programs: &mut Programs<'_>, process: &Process) {
        if !self.wanted || self.first.is_some() {
            return;
        }
        let exe = format!("/proc/{}/exe", process.memory.pid());
        let Ok(facts) = std::fs::metadata(&exe) else {
            return;
        };
        let file = (facts.dev(), facts.ino());
        if self.seen.contains(&file) {
            return;
        }
        // The mappings may be of the program that it ran before.
        let Some((image, _)) = program_of(process) else {
            return;
        };
        self.seen.insert(file);
        let Some(offset) = image.file_offset_of_export(FUNCTION) else {
            return;
        };
        match programs.count_requests(&exe, offset) {
            Ok(()) => self.probes += 1,
            Err(error) => self.reason = format!("the probe on {FUNCTION} was refused: {error}"),
        }
    }

    /// The count so far, or why there is none; `probed` is what the probe has counted.
    #[must_use]
    pub fn result(&self, probed: u64) -> RequestCount {
        if self.first.is_some() {
            match &self.counted {
                Ok(count) => RequestCount::Counted {
                    count: *count,
                    source: format!("memory:{}", shared_counter::POINTER),
                },
                Err(reason) => RequestCount::NotCounted {
                    reason: reason.clone(),
                },
            }
        } else if self.probes > 0 {
            RequestCount::Counted {
                count: probed,
                source: format!("uprobe:{FUNCTION}"),
            }
        } else {
            RequestCount::NotCounted {
                reason: self.reason.clone(),
            }
        }
    }
}

/// Whether no recorded nginx is one without a counter, which only a probe can count.
fn all_have_counters(processes: &HashMap<u32, Process>) -> bool {
    processes.values().filter_map(program_of).all(|(image, _)| {
        image.address_of_export(shared_counter::POINTER).is_some()
            || image.file_offset_of_export(FUNCTION).is_none()
    })
}

/// The process's program file with its bias, if it is mapped.
fn program_of(process: &Process) -> Option<(&Image, u64)> {
    let mapped = process
        .space
        .images()
        .find(|mapped| mapped.path == process.facts.exe)?;
    Some((mapped.image.as_deref().ok()?, mapped.bias))
}
