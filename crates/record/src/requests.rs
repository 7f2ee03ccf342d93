//! Requests that the targets finish while they are recorded, counted without configuration in the target.
//!
//! nginx gives every main request back in `ngx_http_free_request` (src/http/ngx_http_request.c), which it exports for its modules. A
//! probe there adds to a counter of its core for recorded processes, and costs one trap a request as long as the recording lasts: 2 to 3 us on
//! the virtual machine where it was measured, which the samples show as the kernel's `tracing`. Subrequests are not counted; a request that is still under way at the end is not; what a client sent
//! before the first byte of a valid request line counts, too.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

use throughline_profile::RequestCount;

use crate::image::Image;
use crate::plan::RecordPlan;
use crate::process::Process;
use crate::programs::Programs;

/// The function whose calls are counted.
const FUNCTION: &str = "ngx_http_free_request";

/// The probes of one recording, and why there are none.
pub struct Requests {
    wanted: bool,
    /// Device and inode of the programs that were looked at.
    seen: HashSet<(u64, u64)>,
    probes: usize,
    reason: String,
}

impl Requests {
    /// No probe yet; never one when the plan does not want it.
    #[must_use]
    pub fn new(plan: &RecordPlan) -> Self {
        Self {
            wanted: plan.count_requests,
            seen: HashSet::new(),
            probes: 0,
            reason: format!(
                "no recorded program exports {FUNCTION}: it is no nginx, or one without exports"
            ),
        }
    }

    /// Puts a probe on a process's program, unless that has one.
    pub fn watch(&mut self, programs: &mut Programs<'_>, process: &Process) {
        if !self.wanted {
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
        let Some(image) = program_of(process) else {
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

    /// The count so far, or why there is none.
    #[must_use]
    pub fn result(&self, counted: u64) -> RequestCount {
        if self.probes > 0 {
            RequestCount::Counted {
                count: counted,
                source: format!("uprobe:{FUNCTION}"),
            }
        } else {
            RequestCount::NotCounted {
                reason: self.reason.clone(),
            }
        }
    }
}

/// The process's program file, if it is mapped.
fn program_of(process: &Process) -> Option<&Image> {
    let mapped = process
        .space
        .images()
        .find(|mapped| mapped.path == process.facts.exe)?;
    mapped.image.as_deref().ok()
}
