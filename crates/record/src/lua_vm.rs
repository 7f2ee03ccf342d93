//! A LuaJIT VM of a process as the recorder uses it: names for its places, kept while they stay true.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, Profile};
use throughline_target::{
    FastFunctionNames, Handler, LiveProcess, Prototype, Vm, fast_function_names, handlers,
    machine_code, prototype, trace,
};
use throughline_units::Nanos;
use throughline_wire::LuaFrame;

use crate::function_names::FunctionNames;
use crate::inlined::{Expansion, InMachineCode, InlinedFrames, NotExpanded};

/// A prototype is read again when it was last seen this long ago: functions can be collected and their memory used anew.
const PROTOTYPE_TRUSTED: Nanos = Nanos(1_000_000_000);
/// Traces come and go; their list of memory areas is read again at most this often.
const MACHINE_CODE_TRUSTED: Nanos = Nanos(50_000_000);

struct Known {
    prototype: Result<Prototype, String>,
    checked: Nanos,
}

/// One VM.
pub struct LuaVm {
    /// Where it is and how it is laid out.
    pub vm: Vm,
    /// The interpreter's machine code in the process.
    pub interpreter: Range<u64>,
    /// Machine code of traces.
    pub machine_code: Vec<Range<u64>>,
    handlers: Vec<Handler>,
    builtins: Option<FastFunctionNames>,
    prototypes: FxHashMap<u64, Known>,
    frames: FxHashMap<(u64, u64), FrameId>,
    trace_starts: FxHashMap<u32, (Nanos, Option<u64>)>,
    inlined: InlinedFrames,
    machine_code_read: Nanos,
}

impl LuaVm {
    /// Prepares the names of a VM whose interpreter lies at `interpreter`.
    #[must_use]
    pub fn new(memory: &LiveProcess, vm: Vm, interpreter: Range<u64>) -> Self {
        let mut this = Self {
            handlers: handlers(memory, &vm, interpreter.clone()).unwrap_or_default(),
            builtins: fast_function_names(memory, &vm).ok(),
            vm,
            interpreter,
            machine_code: Vec::new(),
            prototypes: FxHashMap::default(),
            frames: FxHashMap::default(),
            trace_starts: FxHashMap::default(),
            inlined: InlinedFrames::default(),
            machine_code_read: Nanos(0),
        };
        this.read_machine_code(memory, MACHINE_CODE_TRUSTED);
        this
    }

    /// Reads the areas of machine code again unless that was done just now; says whether it did.
    pub fn read_machine_code(&mut self, memory: &LiveProcess, now: Nanos) -> bool {
        if now - self.machine_code_read < MACHINE_CODE_TRUSTED {
            return false;
        }
        self.machine_code_read = now;
        if let Ok(code) = machine_code(memory, &self.vm) {
            self.machine_code = code.areas;
        }
        true
    }

    /// The bytecode handler or fast function at an address of the interpreter.
    #[must_use]
    pub fn handler_name(&self, address: u64) -> Option<&str> {
        let after = self
            .handlers
            .partition_point(|handler| handler.address <= address);
        let handler = self.handlers.get(after.checked_sub(1)?)?;
        (address < handler.end).then_some(&*handler.name)
    }

    /// Name of a function of LuaJIT's own library.
    #[must_use]
    pub fn builtin_name(&self, ffid: u32) -> String {
        u8::try_from(ffid)
            .ok()
            .and_then(|ffid| self.builtins.as_ref()?.name(ffid).map(str::to_owned))
            .unwrap_or_else(|| format!("builtin#{ffid}"))
    }

    /// The PC behind the first instruction of a trace, by the trace's number.
    pub fn trace_start(&mut self, memory: &LiveProcess, number: u32, now: Nanos) -> Option<u64> {
        const TRUSTED: Nanos = Nanos(250_000_000);
        if let Some(&(read, start)) = self.trace_starts.get(&number)
            && now - read < TRUSTED
        {
            return start;
        }
        let start = trace(memory, &self.vm, number)
            .ok()
            .map(|trace| trace.start_pc + 4);
        self.trace_starts.insert(number, (now, start));
        start
    }

    /// The frames that a trace has inlined at an address, above the frame that the walk of the Lua stack found at its base.
    pub fn inlined(
        &mut self,
        memory: &LiveProcess,
        place: InMachineCode,
        base: LuaFrame,
    ) -> Result<Rc<Expansion>, NotExpanded> {
        let expansion = self.inlined.at(memory, &self.vm, place)?;
        let base = expansion.base.unwrap_or(base);
        let fits = match expansion.base_pc {
            Some(pc) => base.ffid == 0 && self.contains(memory, base.code, pc, place.now),
            // A vararg function stands on the Lua stack twice, once below its arguments.
            None => expansion
                .frames
                .last()
                .is_some_and(|frame| (frame.code, frame.ffid) == (base.code, base.ffid)),
        };
        fits.then_some(expansion).ok_or(NotExpanded::Changed)
    }

    /// Whether a PC lies in a function's bytecode.
    pub fn contains(&mut self, memory: &LiveProcess, code: u64, pc: u64, now: Nanos) -> bool {
        self.prototype(memory, code, now)
            .is_ok_and(|prototype| prototype.contains(pc))
    }

    fn prototype(
        &mut self,
        memory: &LiveProcess,
        code: u64,
        now: Nanos,
    ) -> Result<&Prototype, &str> {
        let fresh = self
            .prototypes
            .get(&code)
            .is_some_and(|known| now - known.checked < PROTOTYPE_TRUSTED);
        if !fresh {
            let read = prototype(memory, &self.vm.layout, code).map_err(|error| error.to_string());
            let changed = match (self.prototypes.get(&code), &read) {
                (
                    Some(Known {
                        prototype: Ok(old), ..
                    }),
                    Ok(new),
                ) => old != new,
                // What was readable once was this function; that it is gone now says nothing about then.
                (
                    Some(Known {
                        prototype: Ok(_), ..
                    }),
                    Err(_),
                ) => false,
                _ => true,
            };
            if changed {
                self.frames.retain(|&(of, _), _| of != code);
                self.prototypes.insert(
                    code,
                    Known {
                        prototype: read,
                        checked: now,
                    },
                );
            } else if let Some(known) = self.prototypes.get_mut(&code) {
                known.checked = now;
            }
        }
        match self.prototypes.get(&code).map(|known| &known.prototype) {
            Some(Ok(prototype)) => Ok(prototype),
            Some(Err(reason)) => Err(reason),
            None => Err("not read"),
        }
    }

    /// The frame of a Lua function at `pc` (behind the instruction; 0 when unknown). The second value says whether the prototype
    /// could be read.
    pub fn lua_frame(
        &mut self,
        context: &mut NamingContext<'_>,
        code: u64,
        pc: u64,
    ) -> (FrameId, bool) {
        let now = context.now;
        let readable = self.prototype(context.memory, code, now).is_ok();
        if let Some(&frame) = self.frames.get(&(code, pc)) {
            return (frame, readable);
        }
        let frame = match self.prototype(context.memory, code, now) {
            Ok(prototype) => named_frame(context, prototype, pc),
            Err(_) => {
                let strings = &mut context.profile.strings;
                let mut frame =
                    Frame::new(FrameKind::Lua, strings.intern("(unreadable Lua function)"));
                frame.name_reason = Some(strings.intern("prototype_unreadable"));
                frame
            }
        };
        let frame = context.profile.frames.intern(frame);
        self.frames.insert((code, pc), frame);
        (frame, readable)
    }
}

/// What naming a Lua function needs beside its VM.
pub struct NamingContext<'a> {
    /// Where names and frames go.
    pub profile: &'a mut Profile,
    /// The process.
    pub memory: &'a LiveProcess,
    /// Names of functions by source file.
    pub names: &'a mut FunctionNames,
    /// CLOCK_MONOTONIC of the sample.
    pub now: Nanos,
}

fn named_frame(context: &mut NamingContext<'_>, prototype: &Prototype, pc: u64) -> Frame {
    let chunk = String::from_utf8_lossy(&prototype.chunk_name);
    let first_line = if prototype.is_builtin() {
        0
    } else {
        prototype.first_line
    };
    let name = context.names.name(context.memory.pid(), &chunk, first_line);
    let strings = &mut context.profile.strings;
    let place = || {
        let source = chunk_label(&chunk);
        let file = source.rsplit('/').next().unwrap_or(&source);
        format!("{file}:{first_line}")
    };
    let mut frame = match &name {
        // The main chunk of a named string is best known by that name: content_by_lua(nginx.conf:33).
        Ok(_) if first_line == 0 && !chunk.starts_with('@') => {
            Frame::new(FrameKind::Lua, strings.intern(&chunk_label(&chunk)))
        }
        Ok(name) => Frame::new(FrameKind::Lua, strings.intern(name)),
        Err(_) => Frame::new(FrameKind::Lua, strings.intern(&place())),
    };
    frame.name_reason = name.err().map(|reason| strings.intern(reason));
    frame.source = Some(strings.intern(&chunk));
    frame.first_line = first_line;
    frame.line = prototype.line_at(pc).unwrap_or(0);
    frame
}

/// A chunk's name without its mark, or the first line of its source text for a chunk that has no name. Kept as it is: whoever
/// shows it escapes it.
fn chunk_label(chunk: &str) -> String {
    const TEXT_SHOWN: usize = 44;
    match chunk.strip_prefix(['@', '=']) {
        Some(name) => name.to_owned(),
        None => {
            let line = chunk.lines().next().unwrap_or_default();
            let shown: String = line.chars().take(TEXT_SHOWN).collect();
            let cut = if shown.len() < chunk.len() { "..." } else { "" };
            format!("[string \"{shown}{cut}\"]")
        }
    }
}
