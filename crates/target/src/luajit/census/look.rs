//! The look itself: what is read, in which order, and how it is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::super::layout::Layout;
use super::super::prototype::{Prototype, bytecode_start, prototype};
use super::super::scan::Vm;
use super::super::snapshot::{FrameFunction, snapshots};
use super::super::trace::{Origin, Trace, TraceError, trace};
use super::copied::CopiedMemory;
use super::heap::{Functions, SurveyEnd, functions};
use super::ops::{Instruction, Ops, plain};
use super::parameters::parameters;
use super::penalty::Penalty;
use super::stamp::{GcPhase, JitPulse, jit_pulse};
use super::{Callee, Census, CensusTrace, Part, Patched, Place, StartSummary, calls, starts};
use crate::maps::Mapping;
use crate::memory::{Block, Memory, MemoryError};

/// Looks once at everything. `mappings` are the process's at about this time: what is mapped later is
/// read in small pieces, which is slower and not wrong.
///
/// # Errors
/// When the VM's own structures cannot be read; what hangs from them and cannot be read is an entry
/// with a reason instead.
pub fn census(memory: &dyn Memory, mappings: &[Mapping], vm: &Vm) -> Result<Census, MemoryError> {
    let before = (jit_pulse(memory, vm)?, GcPhase::read(memory, vm)?);
    let copied = CopiedMemory::new(memory, mappings);
    let functions = functions(&copied, vm, before.1.root);
    let mut reader = Reader {
        memory: &copied,
        vm,
        ops: Ops::new(vm.layout.opcodes),
        functions: &functions,
        wanted: BTreeSet::new(),
    };
    let (traces, unreadable) = reader.traces(&before.0);
    let penalties = reader.penalties(&before.0, &traces);
    let patched = reader.patched();
    let starts = starts::summaries(&reader, &traces, &penalties, &patched);
    let calls = reader.calls(&starts);
    let prototypes = reader.prototypes();
    let parameters = parameters(memory, vm)?;
    let mut survey = functions.survey;
    survey.bytes_copied = copied.bytes_copied();
    let after = (jit_pulse(memory, vm)?, GcPhase::read(memory, vm)?);
    Ok(Census {
        on: after.0.on,
        recording: after.0.recording,
        parameters,
        changed: changed(&before, &after, survey.end),
        traces,
        unreadable,
        penalties,
        patched,
        machine_code: after.0.machine_code,
        heap: survey,
        starts,
        calls,
        prototypes,
    })
}

/// The start that the instruction at `pc` is, with its plain bytecode (of a compiled `pairs` loop or return, `LOOP`).
/// `None` when no function is there.
pub fn place_of(memory: &dyn Memory, vm: &Vm, pc: u64) -> Option<Place> {
    let bytecode_start = bytecode_start(memory, &vm.layout, pc)?;
    let op = Ops::new(vm.layout.opcodes).name(memory.read_u8(pc).ok()?);
    Some(Place {
        bytecode_start,
        pc,
        op: plain(op),
    })
}

fn changed(
    before: &(JitPulse, GcPhase),
    after: &(JitPulse, GcPhase),
    walk: SurveyEnd,
) -> Vec<Part> {
    let traces = before.0.traces != after.0.traces;
    let penalties = before.0.penalties != after.0.penalties;
    let functions =
        !after.1.nothing_swept_since(&before.1) || walk == SurveyEnd::Changed || penalties;
    [
        (traces, Part::Traces),
        (penalties, Part::Penalties),
        (functions, Part::Functions),
    ]
    .into_iter()
    .filter_map(|(changed, part)| changed.then_some(part))
    .collect()
}

/// Reads through one copy, and remembers which functions the result names.
pub(super) struct Reader<'a> {
    pub memory: &'a CopiedMemory<'a>,
    pub vm: &'a Vm,
    ops: Ops,
    functions: &'a Functions,
    wanted: BTreeSet<u64>,
}

impl Reader<'_> {
    fn layout(&self) -> &Layout {
        &self.vm.layout
    }

    /// The function that an instruction is of: one of the survey, or what lies in front of it.
    fn function_of(&self, pc: u64) -> Option<u64> {
        let nearest = self.functions.prototypes.range(..=pc).next_back().copied();
        let holds = |&start: &u64| {
            let count = self.instruction_count(start).unwrap_or(0);
            pc.wrapping_sub(start) / 4 < u64::from(count)
        };
        nearest
            .filter(holds)
            .or_else(|| bytecode_start(self.memory, self.layout(), pc))
    }

    fn instruction_count(&self, start: u64) -> Option<u32> {
        let at = &self.layout().prototype;
        let sizebc = start.checked_sub(at.size)?.checked_add(at.sizebc)?;
        self.memory.read_u32(sizebc).ok()
    }

    fn traces(&mut self, pulse: &JitPulse) -> (Vec<CensusTrace>, Vec<(u32, TraceError)>) {
        let (mut read, mut failed) = (Vec::new(), Vec::new());
        for (number, &address) in (0..).zip(&pulse.traces) {
            if number == 0 || address == 0 {
                continue;
            }
            match trace(self.memory, self.vm, number) {
                Ok(trace) => read.push(self.census_trace(trace)),
                Err(error) => failed.push((number, error)),
            }
        }
        (read, failed)
    }

    fn census_trace(&mut self, trace: Trace) -> CensusTrace {
        let op = match trace.origin {
            Origin::Exit { .. } => plain(self.op_at(trace.start_pc)),
            Origin::Root | Origin::Stitch { .. } => self.ops.name(trace.start_op()),
        };
        let start = Place {
            bytecode_start: trace.start_bytecode,
            pc: trace.start_pc,
            op,
        };
        self.wanted.insert(trace.start_bytecode);
        let mut entry = CensusTrace {
            start,
            inlined: Vec::new(),
            specialised_to: Vec::new(),
            snapshots_error: None,
            places: Vec::new(),
            trace,
        };
        if let Err(error) = self.bodies(&mut entry) {
            entry.snapshots_error = Some(error);
        }
        entry
    }

    /// Fills in what the snapshots tell.
    fn bodies(&mut self, entry: &mut CensusTrace) -> Result<(), TraceError> {
        let read = snapshots(self.memory, self.vm, &entry.trace)?;
        let lua = |function: FrameFunction| match function {
            FrameFunction::Lua { bytecode_start } => Some(bytecode_start),
            FrameFunction::C { .. } | FrameFunction::Fast { .. } => None,
        };
        let (mut inlined, mut places) = (BTreeSet::new(), BTreeSet::new());
        for snapshot in &read.list {
            places.insert(snapshot.pc);
            places.extend(
                snapshot
                    .frames
                    .iter()
                    .filter_map(|frame| frame.caller_pc()?.checked_sub(4)),
            );
            let frames = snapshot.frames.iter().filter_map(|frame| frame.function);
            inlined.extend(frames.filter_map(lua));
            if snapshot.tail_called {
                inlined.extend(snapshot.base.and_then(lua));
            }
        }
        let constants = read.functions.into_iter().filter_map(lua);
        let own = entry.trace.start_bytecode;
        entry.specialised_to = constants
            .filter(|start| !inlined.contains(start) && *start != own)
            .collect();
        self.wanted
            .extend(inlined.iter().chain(&entry.specialised_to));
        entry.inlined = inlined.into_iter().collect();
        entry.places = places.into_iter().collect();
        Ok(())
    }

    fn op_at(&self, pc: u64) -> &'static str {
        let op = self.memory.read_u8(pc);
        op.map_or("?", |op| self.ops.name(op))
    }

    fn penalties(&mut self, pulse: &JitPulse, traces: &[CensusTrace]) -> Vec<Penalty> {
        let in_use = pulse.penalties.iter().filter(|slot| slot.pc != 0);
        let slots: Vec<_> = in_use.copied().collect();
        slots
            .into_iter()
            .map(|slot| {
                let compiled = traces
                    .iter()
                    .find(|entry| entry.start.pc == slot.pc && entry.trace.origin == Origin::Root);
                let start = self.function_of(slot.pc).map(|bytecode_start| Place {
                    bytecode_start,
                    pc: slot.pc,
                    op: match compiled {
                        Some(entry) => entry.start.op,
                        None => plain(self.op_at(slot.pc)),
                    },
                });
                self.wanted.extend(start.map(|start| start.bytecode_start));
                Penalty {
                    start,
                    pc: slot.pc,
                    value: slot.value,
                    aborts: slot.aborts,
                    reason: slot.reason,
                }
            })
            .collect()
    }

    /// Every function's bytecode, looked through for what is never counted.
    fn patched(&mut self) -> Vec<Patched> {
        let given_up = self.ops.given_up();
        let mut found = Vec::new();
        for &start in &self.functions.prototypes {
            let count = self.instruction_count(start).unwrap_or(0);
            let len = 4 * u64::from(count.min(INSTRUCTIONS_MAX));
            let Ok(code) = self.memory.read_vec(start, len, len) else {
                continue;
            };
            for (index, instruction) in (0u64..).zip(code.chunks_exact(4)) {
                let op = Block(instruction).u8(0);
                if given_up.get(usize::from(op)) == Some(&true) {
                    found.push(self.patched_at(start, start + 4 * index, op));
                }
            }
        }
        self.wanted
            .extend(found.iter().map(|patched| patched.start.bytecode_start));
        found
    }

    fn patched_at(&self, bytecode_start: u64, pc: u64, op: u8) -> Patched {
        let at = &self.layout().prototype;
        let flags = self
            .memory
            .read_u8(bytecode_start.wrapping_sub(at.size).wrapping_add(at.flags));
        let op = self.ops.name(op);
        Patched {
            start: Place {
                bytecode_start,
                pc,
                op: plain(op),
            },
            op,
            switched_off: flags.unwrap_or(0) & FLAG_NO_JIT != 0,
        }
    }

    /// The instructions of the loop that a start repeats; `None` for no loop. `instruction` is the start's own
    /// before it was patched, where a trace tells it.
    pub fn loop_range(
        &self,
        start: Place,
        instruction: Option<u32>,
    ) -> Option<RangeInclusive<u64>> {
        // {first instruction behind the loop's last jump back, its target}.
        let jump = |pc: u64, word: Option<u32>| {
            let word = word.or_else(|| self.memory.read_u32(pc).ok())?;
            let distance = 4 * Instruction(word).jump();
            Some((pc, pc.checked_add(4)?.checked_add_signed(distance)?))
        };
        let (last, first) = match start.op {
            "FORL" | "ITERL" => jump(start.pc, instruction)?,
            // The `ITERL` behind it jumps back.
            "ITERN" => jump(start.pc.checked_add(4)?, None)?,
            // A loop's head jumps behind its end, before which stands the jump back.
            "LOOP" => jump(jump(start.pc, instruction)?.1.checked_sub(4)?, None)?,
            _ => return None,
        };
        (first <= last).then_some(first..=last)
    }

    /// What the functions of the starts call.
    fn calls(&mut self, starts: &[StartSummary]) -> BTreeMap<u64, Vec<Callee>> {
        let of: BTreeSet<u64> = starts
            .iter()
            .map(|summary| summary.start.bytecode_start)
            .collect();
        let read = |start: u64| {
            let closure = self.functions.closures.get(&start).copied();
            let calls = calls(self.memory, self.vm, start, closure).ok()?;
            Some((start, calls))
        };
        let calls: BTreeMap<u64, Vec<Callee>> = of.into_iter().filter_map(read).collect();
        let callees = calls.values().flatten();
        self.wanted
            .extend(callees.filter_map(|callee| callee.bytecode_start));
        calls
    }

    fn prototypes(&self) -> BTreeMap<u64, Prototype> {
        let read = |&start: &u64| Some((start, prototype(self.memory, self.layout(), start).ok()?));
        self.wanted.iter().filter_map(read).collect()
    }
}

/// `PROTO_NOJIT` (lj_obj.h).
const FLAG_NO_JIT: u8 = 8;

/// As many instructions as a function is looked through for; see `prototype`.
const INSTRUCTIONS_MAX: u32 = 1 << 22;
