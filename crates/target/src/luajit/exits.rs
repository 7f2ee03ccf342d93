//! Where the machine code of each snapshot begins, in versions before 2021 that do not record it.
//!
//! A guard is a jump to the exit of its snapshot, and machine code has the order of the
//! snapshots. A snapshot is taken where a guard comes next, so what lies between two guards belongs to
//! the snapshots before the second one.
//! An exit is a stub in the areas of machine code that begins by pushing the low byte of its number
//! (`asm_exitstub_gen`, lj_asm_x86.h), or, once it is hot, the side trace that was made of it
//! (`lj_asm_patchexit`).

use std::collections::BTreeMap;
use std::ops::Range;

use super::scan::Vm;
use super::trace::{Origin, Trace, trace};
use crate::memory::Memory;

/// `push imm8`.
const PUSH_BYTE: u8 = 0x6a;
/// Side traces of a tree that are looked at; LuaJIT makes 100 of a root by default.
const SIDES_MAX: usize = 4096;
/// Machine code of a trace that is looked at; without a recorded offset it lies in one area.
const CODE_MAX: u64 = 1 << 20;
/// Numbers that may be missing between two guards, where their low bytes have to be told apart.
const GAP_MAX: u32 = 128;

/// A jump to an exit: `0f 8x rel32`, or `e9 rel32` behind the jump that closes a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Guard {
    exit: u32,
    /// Bytes from the start of the machine code.
    jump: Range<u32>,
}

/// For each snapshot, where its code begins, in bytes from the start of the trace's. `None` when the
/// code cannot be read.
pub(super) fn code_offsets(memory: &dyn Memory, vm: &Vm, of: &Trace) -> Option<Vec<u32>> {
    let Range { start, end } = of.machine_code;
    let code = memory.read_vec(start, end - start, CODE_MAX).ok()?;
    let sides = sides(memory, vm, of);
    let count = u32::from(of.snapshots);
    let mut guards = Vec::new();
    let mut last = 0;
    for at in 0..code.len() {
        let (distance, behind) = match code[at..] {
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => ([a, b, c, d], at + 6),
            [0xe9, a, b, c, d, ..] => ([a, b, c, d], at + 5),
            _ => continue,
        };
        let distance = i64::from(i32::from_le_bytes(distance));
        let target = (start + behind as u64).wrapping_add_signed(distance);
        if of.machine_code.contains(&target) {
            continue;
        }
        let exit = match sides.get(&target) {
            Some(&exit) => exit,
            None => {
                let mut stub = [0; 2];
                if memory.read(target, &mut stub).is_err() || stub[0] != PUSH_BYTE {
                    continue;
                }
                let low = u32::from(stub[1]);
                if count <= 256 {
                    low
                } else {
                    let unwrapped = last + (low.wrapping_sub(last) & 0xff);
                    if unwrapped - last > GAP_MAX {
                        continue;
                    }
                    unwrapped
                }
            }
        };
        if exit < count {
            last = exit;
            guards.push(Guard {
                exit,
                jump: at as u32..behind as u32,
            });
        }
    }
    Some(begins(&in_order(&guards), count))
}

/// Side traces that start at an exit of this trace, by the address of their machine code.
fn sides(memory: &dyn Memory, vm: &Vm, of: &Trace) -> BTreeMap<u64, u32> {
    let mut sides = BTreeMap::new();
    let root = match of.root {
        Some(root) => trace(memory, vm, root).ok(),
        None => Some(of.clone()),
    };
    let mut next = root.and_then(|root| root.next_side);
    for _ in 0..SIDES_MAX {
        let Some(side) = next.and_then(|number| trace(memory, vm, number).ok()) else {
            break;
        };
        match side.origin {
            Origin::Exit { trace, exit } if trace == of.number => {
                sides.insert(side.machine_code.start, exit);
            }
            _ => {}
        }
        next = side.next_side;
    }
    sides
}

/// The most guards whose numbers never go down. Others are none of the trace's own: the check of the
/// stack at the head of a side trace uses an exit of its parent.
fn in_order(guards: &[Guard]) -> Vec<Guard> {
    // The last guard of the best sequence of each length, and what stands before each guard.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::new();
    for (index, guard) in guards.iter().enumerate() {
        let len = ends.partition_point(|&end| guards[end].exit <= guard.exit);
        before.push(len.checked_sub(1).map(|shorter| ends[shorter]));
        if len == ends.len() {
            ends.push(index);
        } else {
            ends[len] = index;
        }
    }
    let mut kept = Vec::new();
    let mut at = ends.last().copied();
    while let Some(index) = at {
        kept.push(guards[index].clone());
        at = before[index];
    }
    kept.reverse();
    kept
}

/// A snapshot begins with its first guard, one without guards behind the last guard of those before.
fn begins(guards: &[Guard], count: u32) -> Vec<u32> {
    let mut begins = Vec::new();
    let mut rest = guards.iter().peekable();
    let mut behind = 0;
    for snapshot in 0..count {
        let first = rest.peek().filter(|guard| guard.exit == snapshot);
        begins.push(first.map_or(behind, |guard| guard.jump.start));
        while let Some(guard) = rest.next_if(|guard| guard.exit <= snapshot) {
            behind = guard.jump.end;
        }
    }
    if let Some(first) = begins.first_mut() {
        *first = 0;
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards(list: &[(u32, u32)]) -> Vec<Guard> {
        let guard = |&(exit, end): &(u32, u32)| Guard {
            exit,
            jump: end - 6..end,
        };
        list.iter().map(guard).collect()
    }

    #[test]
    fn code_of_a_snapshot_begins_with_its_first_guard() {
        let guards = guards(&[(0, 10), (0, 20), (2, 40), (2, 50), (3, 60)]);
        // Snapshots 1 and 4 have no guards.
        assert_eq!(begins(&guards, 5), [0, 20, 34, 54, 60]);
        assert_eq!(begins(&[], 2), [0, 0]);
    }

    #[test]
    fn a_jump_to_an_exit_of_another_trace_is_left_out() {
        let all = guards(&[(7, 6), (0, 10), (1, 20), (9, 30), (1, 40), (2, 50)]);
        let kept = guards(&[(0, 10), (1, 20), (1, 40), (2, 50)]);
        assert_eq!(in_order(&all), kept);
    }
}
