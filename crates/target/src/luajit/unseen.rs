//! Whether code between two snapshots of a trace may be of a function that neither of them shows.
//!
//! Machine code belongs to the last snapshot that begins before it, so what an inlined function does
//! before its first guard is counted for its caller, and what a caller does after the last guard of
//! a function that has returned is counted for that function. Both are told by the bytecode that
//! lies between the instructions of two snapshots: it must lead from one to the other without a
//! call. Numbers of bytecodes are those of lj_bc.h, which are the same in all versions up to `JMP`.

use std::collections::{BTreeSet, VecDeque};

use super::prototype::{INSTRUCTIONS_MAX, bytecode_start, instructions};
use super::scan::Vm;
use super::snapshot::{FrameFunction, Snapshot, Snapshots};
use super::trace::Trace;
use crate::memory::Memory;

/// Instructions of another function without a call that are left out of account: they are arithmetic
/// and moves, whose machine code is a few instructions, else there would be a snapshot.
const IGNORED: usize = 8;
/// Instructions that are looked at between two snapshots.
const PATH_MAX: usize = 1024;

mod op {
    pub const ISF: u8 = 15;
    pub const UCLO: u8 = 50;
    pub const CALLM: u8 = 65;
    pub const ITERC: u8 = 69;
    pub const ISNEXT: u8 = 72;
    pub const RETM: u8 = 73;
    pub const RET1: u8 = 76;
    pub const FORI: u8 = 77;
    pub const FORL: u8 = 79;
    pub const IFORL: u8 = 80;
    pub const JFORL: u8 = 81;
    pub const ITERL: u8 = 82;
    pub const IITERL: u8 = 83;
    pub const JITERL: u8 = 84;
    pub const JLOOP: u8 = 87;
    pub const JMP: u8 = 88;
}

/// For each snapshot, whether its code may be of a function that it does not show. False when the
/// trace has no Lua function but the one it starts in.
pub fn unseen(memory: &dyn Memory, vm: &Vm, trace: &Trace, snapshots: &Snapshots) -> Vec<bool> {
    let own = FrameFunction::Lua {
        bytecode_start: trace.start_bytecode,
    };
    let inlines = |function: &FrameFunction| {
        *function != own && matches!(function, FrameFunction::Lua { .. })
    };
    if !snapshots.functions.iter().any(inlines) {
        return vec![false; snapshots.list.len()];
    }
    let mut code = Code {
        memory,
        vm,
        functions: Vec::new(),
    };
    let list = &snapshots.list;
    (0..list.len())
        .map(|index| match list.get(index + 1) {
            Some(next) => code.hides(&list[index], next),
            // Behind the last one the trace ends: it jumps to its start or to another trace.
            None => false,
        })
        .collect()
}

struct Function {
    start: u64,
    words: Vec<u8>,
}

impl Function {
    fn instruction(&self, pc: u64) -> Option<[u8; 4]> {
        let at = usize::try_from(pc.checked_sub(self.start)?).ok()?;
        self.words.get(at..at.checked_add(4)?)?.try_into().ok()
    }
}

struct Code<'a> {
    memory: &'a dyn Memory,
    vm: &'a Vm,
    functions: Vec<Function>,
}

impl Code<'_> {
    fn function(&mut self, pc: u64) -> Option<&Function> {
        let known = self
            .functions
            .iter()
            .position(|function| function.instruction(pc).is_some());
        let index = match known {
            Some(index) => index,
            None => {
                let start = bytecode_start(self.memory, &self.vm.layout, pc)?;
                let count = u64::from(instructions(self.memory, &self.vm.layout, start)?);
                let len = 4 * count;
                let words = self
                    .memory
                    .read_vec(start, len, 4 * u64::from(INSTRUCTIONS_MAX));
                self.functions.push(Function {
                    start,
                    words: words.ok()?,
                });
                self.functions.len() - 1
            }
        };
        self.functions.get(index)
    }

    /// What cannot be told counts as hidden.
    fn hides(&mut self, this: &Snapshot, next: &Snapshot) -> bool {
        let (inner, outer) = (&this.frames, &next.frames);
        if inner == outer {
            return self.path(this.pc, next.pc).is_none();
        }
        if let Some(called) = outer.strip_suffix(inner.as_slice()) {
            // Called: one function, which has hardly begun.
            let ([frame], Some(after)) =
                (called, called.last().and_then(|frame| frame.caller_pc()))
            else {
                return true;
            };
            let Some(FrameFunction::Lua { bytecode_start }) = frame.function else {
                return true;
            };
            let before = self.path(this.pc, after.wrapping_sub(4));
            let within = self.path(bytecode_start, next.pc);
            return before.is_none() || within.is_none_or(|count| count > IGNORED);
        }
        if let Some(left) = inner.strip_suffix(outer.as_slice()) {
            // Returned, from one function.
            let ([_], Some(after)) = (left, left.last().and_then(|frame| frame.caller_pc())) else {
                return true;
            };
            let before = self.path_to_return(this.pc);
            let within = self.path(after, next.pc);
            return before.is_none_or(|count| count > IGNORED)
                || within.is_none_or(|count| count > IGNORED);
        }
        true
    }

    /// Instructions on the shortest way from one to another without a call.
    fn path(&mut self, from: u64, to: u64) -> Option<usize> {
        self.shortest(from, |pc, _| pc == to, from > to)
    }

    fn path_to_return(&mut self, from: u64) -> Option<usize> {
        self.shortest(from, |_, op| (op::RETM..=op::RET1).contains(&op), false)
    }

    /// `backwards`: a compiled loop's instruction has lost its target and counts as reached.
    fn shortest(
        &mut self,
        from: u64,
        reached: impl Fn(u64, u8) -> bool,
        backwards: bool,
    ) -> Option<usize> {
        let function = self.function(from)?;
        let mut seen = BTreeSet::from([from]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((pc, distance)) = queue.pop_front() {
            let Some([op, _, low, high]) = function.instruction(pc) else {
                continue;
            };
            let compiled_loop = matches!(op, op::JFORL | op::JITERL | op::JLOOP);
            if reached(pc, op) || (backwards && compiled_loop) {
                return Some(distance);
            }
            if seen.len() > PATH_MAX {
                return None;
            }
            let jump = i64::from(u16::from_le_bytes([low, high])) - 0x8000;
            let target = pc.wrapping_add(4).wrapping_add_signed(4 * jump);
            let next = [pc + 4, pc + 8];
            let ways: &[u64] = match op {
                op::CALLM..=op::ITERC | op::RETM..=op::RET1 => &[],
                0..=op::ISF => &next,
                op::JMP | op::UCLO | op::ISNEXT => &[target],
                op::FORI | op::FORL | op::IFORL | op::ITERL | op::IITERL => &[pc + 4, target],
                _ => &next[..1],
            };
            for &way in ways {
                if seen.insert(way) {
                    queue.push_back((way, distance + 1));
                }
            }
        }
        None
    }
}
