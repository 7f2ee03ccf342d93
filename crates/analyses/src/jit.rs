//! What LuaJIT's compiler makes of a program: the document of `jit --json`, what it says to people, and two of them
//! compared.
//!
//! The state is read elsewhere; here are its words. Ways in which it may mislead:
//! - the state is that of one moment: a start that was given up before a flush and one that was given up a second ago look
//!   the same;
//! - aborts are those that penalty slots still tell, at most 11; aborts of side traces leave no trace in the VM;
//! - a start that is given up costs nothing when its body runs inlined in other traces, which is told beside it.

mod diff;
mod document;
mod text;

pub use diff::{Common, Diff, DiffSet, DiffSide, DiffStart, Relation, diff};
pub use document::{
    Blacklisted, CalledFunction, Events, FunctionPlace, InlinedFunction, JitDocument, LuaTrace,
    PenaltySlot, PolledEvent, Prototypes, SCHEMA, Start, StartState, UnreadableTrace, VmState,
    WithoutVm,
};
