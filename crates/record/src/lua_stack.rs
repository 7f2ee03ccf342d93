//! The Lua frames of a sample, split into the segments that run in one VM frame each.
//!
//! A VM frame on the C stack runs Lua until a C boundary (`FRAME_C`, `FRAME_CP`); what lies below the boundary runs in the
//! next VM frame of the same Lua thread. Frame types are those of LuaJIT's lj_frame.h.

use throughline_wire::{LuaFrame, SampleRecord};

use crate::inlined::Expansion;

const TYPE_CONT: u64 = 2;
const TYPE_VARG: u64 = 3;
const C_FUNCTION: u32 = 1;

/// What a Lua frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A Lua function by its first bytecode, with the PC behind the running instruction when the frame above tells it.
    Lua {
        /// Address of the first bytecode.
        code: u64,
        /// PC from the frame above; `None` at the top of a segment.
        pc: Option<u64>,
    },
    /// A C function by its address.
    C {
        /// Address of the function.
        address: u64,
    },
    /// A function of LuaJIT's own library.
    Builtin {
        /// Its number.
        ffid: u32,
    },
}

/// The Lua stacks of one sample, consumed segment by segment as the native walk meets VM frames.
pub struct LuaStacks {
    states: Vec<(u64, Vec<LuaFrame>, usize)>,
}

impl LuaStacks {
    /// Takes the frames of a record apart by Lua thread.
    #[must_use]
    pub fn of_sample(record: &SampleRecord<'_>) -> Self {
        let mut states: Vec<(u64, Vec<LuaFrame>, usize)> = record
            .states()
            .iter()
            .map(|state| (state.address, Vec::new(), 0))
            .collect();
        for frame in record.lua() {
            if let Some((_, frames, _)) = states.get_mut(frame.state as usize) {
                frames.push(frame);
            }
        }
        Self { states }
    }

    /// The frame at the top of the next segment of a Lua thread, when that segment is the innermost of the sample.
    #[must_use]
    pub fn innermost_frame(&self, lua_thread: u64) -> Option<LuaFrame> {
        let (address, frames, cursor) = self.states.first()?;
        (*address == lua_thread && *cursor == 0).then(|| frames.first().copied())?
    }

    /// The next segment of a Lua thread, innermost first, below the frames that a trace has inlined; and whether it is of the
    /// sample's innermost Lua thread and its first segment.
    pub fn segment(
        &mut self,
        lua_thread: u64,
        inlined: Option<&Expansion>,
        into: &mut Vec<Callee>,
    ) -> bool {
        into.clear();
        let Some(index) = self
            .states
            .iter()
            .position(|(address, ..)| *address == lua_thread)
        else {
            return false;
        };
        let (_, frames, cursor) = &mut self.states[index];
        let innermost = index == 0 && *cursor == 0;
        let mut walk = Walk::default();
        if let Some(inlined) = inlined {
            walk.pc = Some(inlined.pc);
            for frame in &inlined.frames {
                walk.step(frame, into);
            }
        }
        let mut base = inlined.and_then(|inlined| inlined.base);
        while let Some(frame) = frames.get(*cursor) {
            *cursor += 1;
            let called = base.take().map(|base| LuaFrame {
                code: base.code,
                ffid: base.ffid,
                ..*frame
            });
            walk.step(&called.unwrap_or(*frame), into);
            if frame.link & 3 == 1 {
                break;
            }
        }
        innermost
    }
}

/// Goes down a Lua stack, frame by frame.
#[derive(Default)]
struct Walk {
    /// Of the next frame, behind its running instruction.
    pc: Option<u64>,
    /// The next frame is the second one of a vararg function.
    pseudo: bool,
}

impl Walk {
    fn step(&mut self, frame: &LuaFrame, into: &mut Vec<Callee>) {
        let vararg = frame.link & 7 == TYPE_VARG;
        if !self.pseudo {
            into.extend(callee(frame, self.pc));
        }
        // A vararg function has a second frame below its own, which carries the link to the caller.
        self.pseudo = vararg && !self.pseudo;
        self.pc = match frame.link {
            link if link & 3 == 0 => Some(link),
            link if link & 7 == TYPE_CONT => Some(frame.continuation_pc).filter(|&pc| pc != 0),
            _ => None,
        };
    }
}

fn callee(frame: &LuaFrame, pc: Option<u64>) -> Option<Callee> {
    match frame.ffid {
        LuaFrame::DUMMY => None,
        0 => Some(Callee::Lua {
            code: frame.code,
            pc,
        }),
        C_FUNCTION => Some(Callee::C {
            address: frame.code,
        }),
        ffid => Some(Callee::Builtin { ffid }),
    }
}
