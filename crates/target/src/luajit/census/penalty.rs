//! Penalty slots: starts at which recording was aborted, how often, and why the last time.
//!
//! An abort puts 72 into a free slot of 64 that are used in turn; each further one doubles the value
//! and adds 0 to 15; the one that would take it above 60,000 gives the start up, that is, patches its
//! bytecode, and leaves the value (`penalty_pc`, lj_trace.c; `PENALTY_*`, lj_jit.h). A start whose
//! slot was taken by another begins anew with 72.

use super::super::scan::Vm;
use super::Place;
use crate::memory::Block;

/// `PENALTY_SLOTS`.
pub(super) const SLOTS: u64 = 64;
/// `sizeof(HotPenalty)`: {pc u64, val u16, reason u16, padding}.
pub(super) const SLOT_LEN: u64 = 16;
/// `PENALTY_MIN`, the same in all known versions.
const FIRST_VALUE: u32 = 72;

/// Aborts in one life of a slot after which a start is given up: 72 * 2^9 = 36,864 is the least value
/// after the tenth, and twice that is above 60,000; what is added at random never amounts to one step.
pub const ABORTS_TO_GIVE_UP: u32 = 11;

/// A slot in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Penalty {
    /// The start; `None` when no function with such an instruction is there any more.
    pub start: Option<Place>,
    /// Address of the instruction.
    pub pc: u64,
    /// The value: the count of executions until the next try.
    pub value: u16,
    /// Aborts that the value tells: exact for this life of the slot.
    pub aborts: u32,
    /// Number of the reason of the last abort but for the one that gave up.
    pub reason: u16,
}

/// Aborts that a penalty value tells: floor(log2(value / 72)) + 1; 0 for a value below 72.
pub fn derived_aborts(value: u16) -> u32 {
    (u32::from(value) / FIRST_VALUE)
        .checked_ilog2()
        .map_or(0, |doublings| doublings + 1)
}

/// A slot as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawSlot {
    pub pc: u64,
    pub value: u16,
    pub reason: u16,
}

/// Slots of the raw array, empty ones too.
pub(super) fn slots(raw: &[u8]) -> impl Iterator<Item = RawSlot> + '_ {
    raw.chunks_exact(SLOT_LEN as usize).map(|slot| {
        let slot = Block(slot);
        RawSlot {
            pc: slot.u64(0),
            value: slot.u16(8),
            reason: slot.u16(10),
        }
    })
}

/// Address of the array.
pub(super) fn array(vm: &Vm) -> u64 {
    vm.jit_state().wrapping_add(vm.layout.jit.penalty)
}

/// Reasons by number (`TREDEF`, lj_traceerr.h), without the operand that the VM keeps only for the
/// last abort of all. The same in all known versions.
const REASONS: [&str; 35] = [
    "error thrown or hook called during recording",
    "trace too short",
    "trace too long",
    "trace too deep",
    "too many snapshots",
    "blacklisted",
    "retry recording",
    "NYI: bytecode",
    "leaving loop in root trace",
    "inner loop in root trace",
    "loop unroll limit reached",
    "bad argument type",
    "JIT compilation disabled for function",
    "call unroll limit reached",
    "down-recursion, restarting",
    "NYI: unsupported variant of FastFunc",
    "NYI: return to lower frame",
    "store with nil or NaN key",
    "missing metamethod",
    "looping index lookup",
    "NYI: mixed sparse/dense table",
    "symbol not in cache",
    "NYI: unsupported C type conversion",
    "NYI: unsupported C function type",
    "guard would always fail",
    "too many PHIs",
    "persistent type instability",
    "failed to allocate mcode memory",
    "machine code too long",
    "hit mcode limit (retrying)",
    "too many spill slots",
    "inconsistent register allocation",
    "NYI: cannot assemble IR instruction",
    "NYI: PHI shuffling too complex",
    "NYI: register coalescing too complex",
];

/// The text for a reason's number; `None` for a number that no known version has.
pub fn abort_reason(number: u16) -> Option<&'static str> {
    REASONS.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_that_the_vm_can_reach_tells_its_number_of_aborts() {
        // Least and greatest value after each abort: doubled, plus 0 to 15.
        let (mut least, mut greatest) = (72u32, 72u32);
        for aborts in 1..ABORTS_TO_GIVE_UP {
            for value in least..=greatest {
                let value = u16::try_from(value).expect("below 60,000");
                assert_eq!(derived_aborts(value), aborts, "{value}");
            }
            (least, greatest) = (2 * least, 2 * greatest + 15);
        }
        assert!(least > 60_000, "the eleventh gives up, whatever was added");
        assert_eq!(derived_aborts(0), 0);
    }
}
