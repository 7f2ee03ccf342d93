//! A census in the words of the document.

use throughline_analyses::jit::{
    Blacklisted, CalledFunction, FunctionPlace, InlinedFunction, LuaTrace, PenaltySlot, Prototypes,
    Start, StartState, UnreadableTrace, VmState,
};
use throughline_record::FunctionNames;
use throughline_target::{
    Census, CensusTrace, Origin, Patched, Penalty, Place, Prototype, StartSummary, SurveyEnd, Vm,
    abort_reason,
};

use super::look::State;

/// Slots of the penalty cache: when all are in use, starts may have lost theirs.
const PENALTY_SLOTS: usize = 64;

/// One VM.
pub fn vm_state(pid: u32, vm: &Vm, state: &State, names: &mut FunctionNames) -> VmState {
    let census = &state.census;
    let mut words = Words { pid, names, census };
    let unset = || "the jit library was never opened, so its parameters are unset".to_owned();
    let parameters = census.parameters.as_ref();
    VmState {
        pid,
        state: format!("{:#x}", vm.global_state),
        version: vm.layout.name.to_owned(),
        trace_count: (census.traces.len() + census.unreadable.len()) as u64,
        trace_max: parameters.map(|parameters| u64::from(parameters.traces_max())),
        trace_max_reason: parameters.is_none().then(unset),
        mcode_bytes: census.machine_code.allocated,
        mcode_used_bytes: census.machine_code.used,
        mcode_max_bytes: parameters.map(|parameters| parameters.machine_code_max()),
        mcode_max_bytes_reason: parameters.is_none().then(unset),
        jit_on: census.on,
        recording: census.recording,
        parameters: parameters
            .iter()
            .flat_map(|parameters| &parameters.0)
            .map(|parameter| (parameter.name.to_owned(), i64::from(parameter.value)))
            .collect(),
        changed_while_read: census
            .changed
            .iter()
            .map(|part| part.name().to_owned())
            .collect(),
        prototypes: prototypes(state),
        traces: census
            .traces
            .iter()
            .map(|entry| words.trace(entry))
            .collect(),
        unreadable_traces: census
            .unreadable
            .iter()
            .map(|(id, error)| UnreadableTrace {
                id: *id,
                reason: error.to_string(),
            })
            .collect(),
        penalties: census
            .penalties
            .iter()
            .map(|slot| words.penalty(slot))
            .collect(),
        blacklisted: census
            .patched
            .iter()
            .map(|patched| words.blacklisted(patched))
            .collect(),
        starts: census
            .starts
            .iter()
            .map(|summary| words.start_state(summary))
            .collect(),
    }
}

fn prototypes(state: &State) -> Prototypes {
    let survey = &state.census.heap;
    Prototypes {
        count: survey.prototypes,
        objects: survey.objects,
        complete: survey.end == SurveyEnd::Whole,
        complete_reason: match survey.end {
            SurveyEnd::Whole => None,
            SurveyEnd::Changed => Some("changed while read".to_owned()),
            SurveyEnd::TooMany => Some("more objects than are followed".to_owned()),
        },
        bytes_copied: survey.bytes_copied,
        look_ns: u64::try_from(state.length.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// The text of an abort's reason.
pub fn reason(number: u16) -> String {
    abort_reason(number).map_or_else(
        || format!("reason {number}, which no known version has"),
        str::to_owned,
    )
}

/// The chunk's name with its mark, or what stands for a chunk without a name.
fn source(prototype: &Prototype) -> String {
    match prototype.chunk_name.first() {
        Some(b'@' | b'=') => String::from_utf8_lossy(&prototype.chunk_name).into_owned(),
        _ => prototype.source(),
    }
}

/// Where an instruction lies, in the document's words.
pub fn start(
    place: &Place,
    prototype: Option<&Prototype>,
    pid: u32,
    names: &mut FunctionNames,
) -> Start {
    let gone = || Some("no function is there any more".to_owned());
    let Some(prototype) = prototype else {
        return Start {
            op: place.op.to_owned(),
            source_reason: gone(),
            line_reason: gone(),
            function_reason: gone(),
            ..Start::default()
        };
    };
    let line = prototype.line_at(place.pc.wrapping_add(4));
    let instruction = place.pc.wrapping_sub(place.bytecode_start) / 4;
    Start {
        source: Some(source(prototype)),
        source_reason: None,
        line: line.ok(),
        line_reason: line.err().map(|error| error.to_string()),
        op: place.op.to_owned(),
        function: Some(function_place(prototype, pid, names)),
        function_reason: None,
        instruction: u32::try_from(instruction).unwrap_or(u32::MAX),
    }
}

fn function_place(prototype: &Prototype, pid: u32, names: &mut FunctionNames) -> FunctionPlace {
    let first_line = first_line(prototype);
    let source = source(prototype);
    let name = names.name(pid, &source, first_line);
    FunctionPlace {
        last_line: first_line.saturating_add(prototype.line_count),
        name_reason: name.as_ref().err().map(|reason| (*reason).to_owned()),
        name: name.ok(),
        source,
        first_line,
    }
}

fn first_line(prototype: &Prototype) -> u32 {
    if prototype.is_builtin() {
        0
    } else {
        prototype.first_line
    }
}

struct Words<'a> {
    pid: u32,
    names: &'a mut FunctionNames,
    census: &'a Census,
}

impl Words<'_> {
    fn start(&mut self, place: &Place) -> Start {
        let prototype = self.census.prototype(place.bytecode_start);
        start(place, prototype, self.pid, self.names)
    }

    fn inlined(&self, starts: &[u64]) -> Vec<InlinedFunction> {
        let known = starts
            .iter()
            .filter_map(|&start| self.census.prototype(start));
        known
            .map(|prototype| InlinedFunction {
                source: source(prototype),
                first_line: first_line(prototype),
            })
            .collect()
    }

    fn trace(&mut self, entry: &CensusTrace) -> LuaTrace {
        let trace = &entry.trace;
        let (parent, parent_exit) = match trace.origin {
            Origin::Root => (None, None),
            Origin::Exit { trace, exit } => (Some(trace), Some(exit)),
            Origin::Stitch { trace } => (Some(trace), None),
        };
        LuaTrace {
            id: trace.number,
            start: self.start(&entry.start),
            root: trace.root.unwrap_or(0),
            parent,
            parent_reason: parent
                .is_none()
                .then(|| "a root trace, entered from the interpreter".to_owned()),
            parent_exit,
            stitched: matches!(trace.origin, Origin::Stitch { .. }),
            link: trace.link_type.to_string(),
            link_to: trace.link.unwrap_or(0),
            mcode_bytes: trace.machine_code.end - trace.machine_code.start,
            exits: u32::from(trace.snapshots),
            inlined: self.inlined(&entry.inlined),
            specialised_to: self.inlined(&entry.specialised_to),
            inlined_reason: entry.snapshots_error.as_ref().map(ToString::to_string),
        }
    }

    fn penalty(&mut self, slot: &Penalty) -> PenaltySlot {
        let place = slot.start.unwrap_or(Place {
            bytecode_start: 0,
            pc: slot.pc,
            op: "?",
        });
        PenaltySlot {
            start: self.start(&place),
            value: u32::from(slot.value),
            aborts: slot.aborts,
            reason: reason(slot.reason),
            reason_number: u32::from(slot.reason),
        }
    }

    fn blacklisted(&mut self, patched: &Patched) -> Blacklisted {
        let start = self.start(&patched.start);
        Blacklisted {
            source: start.source,
            source_reason: start.source_reason,
            line: start.line,
            line_reason: start.line_reason,
            op: patched.op.to_owned(),
            cause: if patched.switched_off {
                "switched_off"
            } else {
                "aborts"
            }
            .to_owned(),
        }
    }

    fn start_state(&mut self, summary: &StartSummary) -> StartState {
        let exact = self.census.penalties.len() < PENALTY_SLOTS
            && (summary.reason.is_some() || !summary.given_up);
        let calls = self.census.calls(summary.start.bytecode_start);
        let (census, pid) = (self.census, self.pid);
        let calls = calls
            .iter()
            .map(|callee| {
                let found = callee
                    .bytecode_start
                    .and_then(|start| census.prototype(start));
                let function = found.map(|found| function_place(found, pid, self.names));
                let own_name = function.as_ref().and_then(|function| function.name.clone());
                CalledFunction {
                    name: match own_name {
                        // A function that is made where it is called has no name there.
                        Some(name) if callee.name == "function" => name,
                        _ => callee.name.clone(),
                    },
                    function,
                }
            })
            .collect();
        StartState {
            start: self.start(&summary.start),
            compiled: summary.compiled,
            aborts: summary.aborts,
            aborts_bound: if exact { "exact" } else { "lower" }.to_owned(),
            reason: summary.reason.map(reason),
            reason_reason: summary
                .reason
                .is_none()
                .then(|| "no penalty slot tells it".to_owned()),
            given_up: summary.given_up,
            body_inlined_in: summary.body_inlined_in.clone(),
            calls,
        }
    }
}
