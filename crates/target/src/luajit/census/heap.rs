//! Every function that a VM has, by the chain of its collectable objects.
//!
//! New objects go in front of the chain, and only the garbage collector's sweep takes objects out of
//! it (`lj_mem_newgco`, `gc_sweep`, lj_gc.c). So a chain that was followed from its old start while
//! nothing was swept is whole. One that was followed while something was swept may lead into memory
//! that was used again: then it comes back to where it began, which is noticed, or to nonsense.

use std::collections::{BTreeMap, BTreeSet};

use super::super::scan::Vm;
use super::super::{GCT, POINTER_MASK, gct};
use crate::memory::{Block, Memory};

/// Objects that are followed at most; they take 16 bytes at least.
const OBJECTS_MAX: u64 = 1 << 26;

/// How a survey ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SurveyEnd {
    /// At the end of the chain: every function was seen.
    Whole,
    /// The chain changed while it was followed.
    #[default]
    Changed,
    /// There are more objects than are followed.
    TooMany,
}

/// How many objects were looked through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapSurvey {
    /// Objects of the chain.
    pub objects: u64,
    /// Function prototypes among them.
    pub prototypes: u64,
    /// Bytes of the target's memory that were copied.
    pub bytes_copied: u64,
    /// Whether it is all of them.
    pub end: SurveyEnd,
}

/// The functions of a VM.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// Addresses of the first instructions.
    pub prototypes: BTreeSet<u64>,
    /// A closure of each function that has one, by the address of its first instruction.
    pub closures: BTreeMap<u64, u64>,
    pub survey: HeapSurvey,
}

/// Type tags of objects in the chain: `~LJ_TSTR` to `~LJ_TUDATA` (lj_obj.h). Strings have lists of
/// their own.
const TAGS: std::ops::RangeInclusive<u8> = 5..=12;

/// Follows the chain from `root` to the main thread, which is its last object but for userdata.
pub(super) fn functions(memory: &dyn Memory, vm: &Vm, root: u64) -> Functions {
    let mut found = Functions::default();
    let mut at = root & POINTER_MASK;
    // Brent's way to notice a circle: compare with an object that is renewed at each power of two.
    let (mut mark, mut renew_at) = (0, 1);
    while at != vm.main_thread {
        let mut header = [0; 16];
        let readable = at.is_multiple_of(8) && at != 0 && memory.read(at, &mut header).is_ok();
        let tag = Block(&header).u8(GCT);
        if !readable || !TAGS.contains(&tag) || at == mark {
            return found;
        }
        if found.survey.objects == renew_at {
            (mark, renew_at) = (at, 2 * renew_at);
        }
        found.survey.objects += 1;
        if found.survey.objects > OBJECTS_MAX {
            found.survey.end = SurveyEnd::TooMany;
            return found;
        }
        match tag {
            gct::PROTOTYPE => {
                found.survey.prototypes += 1;
                found
                    .prototypes
                    .insert(at.wrapping_add(vm.layout.prototype.size));
            }
            gct::FUNCTION => keep_closure(memory, vm, at, &mut found),
            _ => {}
        }
        at = Block(&header).u64(0) & POINTER_MASK;
    }
    found.survey.end = SurveyEnd::Whole;
    found
}

fn keep_closure(memory: &dyn Memory, vm: &Vm, at: u64, found: &mut Functions) {
    let fields = &vm.layout.function;
    let mut block = [0; 40];
    if memory.read(at, &mut block).is_ok() && Block(&block).u8(fields.ffid) == 0 {
        let start = Block(&block).u64(fields.pc);
        found.closures.entry(start).or_insert(at);
    }
}
