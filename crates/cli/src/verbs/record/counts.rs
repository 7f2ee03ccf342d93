//! Counts over the samples as they pass to the file, which keeps none of them in memory.

use std::collections::{BTreeMap, HashMap};

use throughline_profile::{Flags, FrameId, LuaContext, Profile, Sample, SampleKind, StackId};

/// Counts over all samples kept, on-CPU and off-CPU apart.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub on_cpu: KindCounts,
    pub off_cpu: KindCounts,
}

/// Counts over the samples of one kind.
#[derive(Clone, Debug, Default)]
pub struct KindCounts {
    pub samples: u64,
    pub lua: BTreeMap<LuaContext, u64>,
    /// Without any stack.
    pub no_stack: u64,
    /// The copy of the stack ended before the process entry.
    pub truncated: u64,
    /// Unwinding stopped before the process entry for another reason.
    pub unwind_incomplete: u64,
    /// Frames that those stopped at, with their number.
    pub stopped_at: HashMap<FrameId, u64>,
}

impl Counts {
    /// Counts the samples that a profile holds now.
    pub fn add(&mut self, profile: &Profile) {
        for sample in profile.samples.iter() {
            let counts = match sample.kind {
                SampleKind::OnCpu => &mut self.on_cpu,
                SampleKind::OffCpu(_) => &mut self.off_cpu,
            };
            counts.add(profile, sample);
        }
    }
}

impl KindCounts {
    fn add(&mut self, profile: &Profile, sample: &Sample) {
        self.samples += 1;
        *self.lua.entry(sample.lua).or_default() += 1;
        let Some(stack) = sample.stack else {
            self.no_stack += 1;
            return;
        };
        if sample.flags.contains(Flags::STACK_TRUNCATED) {
            self.truncated += 1;
        } else if sample.flags.contains(Flags::NATIVE_UNWIND_INCOMPLETE) {
            self.unwind_incomplete += 1;
            if let Some(frame) = stopped_at(profile, stack) {
                *self.stopped_at.entry(frame).or_default() += 1;
            }
        }
    }

    /// Samples whose stack does not reach the process entry.
    pub fn incomplete(&self) -> u64 {
        self.no_stack + self.truncated + self.unwind_incomplete
    }

    /// Where unwinding stopped most often.
    pub fn stopped_most_at(&self) -> Option<(FrameId, u64)> {
        self.stopped_at
            .iter()
            .map(|(&frame, &count)| (frame, count))
            .max_by_key(|&(frame, count)| (count, frame))
    }
}

/// The outermost frame of a file's code: what lies beyond it was not found, or guessed and wrong. The outermost of all when
/// no code is a file's.
fn stopped_at(profile: &Profile, stack: StackId) -> Option<FrameId> {
    let frames = || profile.stacks.frames_leaf_first(stack);
    let of_file = |&frame: &FrameId| profile.frames.get(frame).module.is_some();
    frames().filter(of_file).last().or_else(|| frames().last())
}
