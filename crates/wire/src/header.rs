//! The C header, made from the Rust definitions.

use std::fmt::Write as _;

use crate::counter::Counter;
use crate::process::ProcessEvent;
use crate::sample::{LuaFrame, LuaState, SampleHeader};
use crate::settings::{Settings, TargetEntry, ThreadAccount, VmEntry};
use crate::{fault, kind, limits};

/// Constants, counters, and one assertion per struct field for the hand-written C structs.
///
/// The C structs are named like the Rust ones in snake case (`struct sample_header`); include this text after them.
#[must_use]
pub fn c_header() -> String {
    let mut c = String::from("/* Made from the crate throughline-wire; do not edit. */\n");
    let mut define = |name: &str, value: u64| {
        let _ = writeln!(c, "#define {name} {value}");
    };
    define("STACK_BYTES_MAX", limits::STACK_BYTES_MAX as u64);
    define("RING_BYTES", limits::RING_BYTES as u64);
    define("KERNEL_FRAMES_MAX", limits::KERNEL_FRAMES_MAX as u64);
    define("LUA_FRAMES_MAX", limits::LUA_FRAMES_MAX as u64);
    define("LUA_STATES_MAX", limits::LUA_STATES_MAX as u64);
    define("VMS_MAX", limits::VMS_MAX as u64);
    define("KERNEL_SYMBOL_TEXT", limits::KERNEL_SYMBOL_TEXT as u64);
    define("KIND_ON_CPU", kind::ON_CPU.into());
    define("KIND_OFF_CPU", kind::OFF_CPU.into());
    define("KIND_PROCESS", kind::PROCESS.into());
    for (name, bit) in [
        ("LUA_DEPTH", fault::LUA_DEPTH),
        ("LUA_SLOT", fault::LUA_SLOT),
        ("LUA_FUNCTION", fault::LUA_FUNCTION),
        ("LUA_NOT_FUNCTION", fault::LUA_NOT_FUNCTION),
        ("LUA_INSTRUCTION", fault::LUA_INSTRUCTION),
        ("STACK_LIMIT", fault::STACK_LIMIT),
        ("STACK_UNREADABLE", fault::STACK_UNREADABLE),
        ("NO_KERNEL_STACK", fault::NO_KERNEL_STACK),
    ] {
        define(&format!("FAULT_{name}"), bit.into());
    }
    define("FFID_DUMMY", LuaFrame::DUMMY.into());
    for counter in Counter::ALL {
        let name = format!("{counter:?}");
        define(&format!("COUNTER_{}", screaming(&name)), *counter as u64);
    }
    define("COUNTERS_LEN", Counter::ALL.len() as u64);
    c
}

/// Assertions that every C struct has the size and the offsets of its Rust twin.
#[must_use]
pub fn c_assertions() -> String {
    let mut c = String::new();
    for (name, size, offsets) in [
        (
            "sample_header",
            size_of::<SampleHeader>(),
            SampleHeader::OFFSETS,
        ),
        ("lua_frame", size_of::<LuaFrame>(), &[][..]),
        ("lua_state_record", size_of::<LuaState>(), &[]),
        (
            "process_event",
            size_of::<ProcessEvent>(),
            ProcessEvent::OFFSETS,
        ),
        ("settings", size_of::<Settings>(), Settings::OFFSETS),
        ("vm_entry", size_of::<VmEntry>(), VmEntry::OFFSETS),
        (
            "target_entry",
            size_of::<TargetEntry>(),
            TargetEntry::OFFSETS,
        ),
        (
            "thread_account",
            size_of::<ThreadAccount>(),
            ThreadAccount::OFFSETS,
        ),
    ] {
        let _ = writeln!(
            c,
            "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");"
        );
        for (field, offset) in offsets {
            let _ = writeln!(
                c,
                "_Static_assert(__builtin_offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");"
            );
        }
    }
    c
}

fn screaming(camel: &str) -> String {
    let mut out = String::new();
    for (i, letter) in camel.chars().enumerate() {
        if letter.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}
