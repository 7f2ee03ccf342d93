//! Names of fast functions: the library functions that LuaJIT knows by a number (`ffid`).
//!
//! The numbering follows the order of the library sources and differs with the fork and with the
//! option for Lua 5.2 compatibility, which leaves no other trace in the VM. So the VM itself is asked:
//! its own globals say which function has which number, and one of the known numberings is used
//! only when they agree with it.

use super::layout::Layout;
use super::scan::Vm;
use super::{GCT, POINTER_MASK, gct};
use crate::memory::{Block, Memory, MemoryError};

/// The numbering of 2019 to 2026 (`lj_ffdef.h`, which each build generates from its libraries). A
/// name after `+` is in OpenResty's fork only, one after `5` only with `LUAJIT_ENABLE_LUA52COMPAT`,
/// one after `.` only since 2020.
const NUMBERING: &str = "\
    Lua C assert type next pairs ipairs_aux ipairs getmetatable setmetatable getfenv setfenv \
    rawget rawset rawequal 5rawlen unpack select tonumber tostring error pcall xpcall loadfile \
    load loadstring dofile gcinfo collectgarbage newproxy print coroutine.status \
    coroutine.running coroutine.isyieldable coroutine.create coroutine.yield coroutine.resume \
    coroutine.wrap_aux coroutine.wrap +thread.exdata +.thread.exdata2 math.abs math.floor \
    math.ceil math.sqrt math.log10 math.exp math.sin math.cos math.tan math.asin math.acos \
    math.atan math.sinh math.cosh math.tanh math.frexp math.modf math.log math.atan2 math.pow \
    math.fmod math.ldexp math.min math.max math.random math.randomseed bit.tobit bit.bnot \
    bit.bswap bit.lshift bit.rshift bit.arshift bit.rol bit.ror bit.band bit.bor bit.bxor \
    bit.tohex string.byte string.char string.sub string.rep string.reverse string.lower \
    string.upper string.dump string.find string.match string.gmatch_aux string.gmatch \
    string.gsub string.format table.maxn table.insert table.concat +table.clone +table.isarray \
    +table.nkeys +table.isempty table.sort 5table.pack table.new table.clear io.method.close \
    io.method.read io.method.write io.method.flush io.method.seek io.method.setvbuf \
    io.method.lines io.method.__gc io.method.__tostring io.open io.popen io.tmpfile io.close \
    io.read io.write io.flush io.input io.output io.lines io.type os.execute os.remove os.rename \
    os.tmpname os.getenv os.exit os.clock os.date os.time os.difftime os.setlocale \
    debug.getregistry debug.getmetatable debug.setmetatable debug.getfenv debug.setfenv \
    debug.getinfo debug.getlocal debug.setlocal debug.getupvalue debug.setupvalue \
    debug.upvalueid debug.upvaluejoin 5debug.getuservalue 5debug.setuservalue debug.sethook \
    debug.gethook debug.debug debug.traceback jit.on jit.off jit.flush jit.status .jit.security \
    jit.attach +jit.prngstate jit.util.funcinfo jit.util.funcbc jit.util.funck \
    jit.util.funcuvname jit.util.traceinfo jit.util.traceir jit.util.tracek jit.util.tracesnap \
    jit.util.tracemc jit.util.traceexitstub jit.util.ircalladdr jit.opt.start jit.profile.start \
    jit.profile.stop jit.profile.dumpstack ffi.meta.__index ffi.meta.__newindex ffi.meta.__eq \
    ffi.meta.__len ffi.meta.__lt ffi.meta.__le ffi.meta.__concat ffi.meta.__call ffi.meta.__add \
    ffi.meta.__sub ffi.meta.__mul ffi.meta.__div ffi.meta.__mod ffi.meta.__pow ffi.meta.__unm \
    ffi.meta.__tostring ffi.meta.__pairs ffi.meta.__ipairs ffi.clib.__index ffi.clib.__newindex \
    ffi.clib.__gc ffi.callback.free ffi.callback.set ffi.cdef ffi.new ffi.cast ffi.typeof \
    ffi.typeinfo ffi.istype ffi.sizeof ffi.alignof ffi.offsetof ffi.errno ffi.string ffi.copy \
    ffi.fill ffi.abi ffi.metatype ffi.gc ffi.load .buffer.method.free .buffer.method.reset \
    .buffer.method.skip .buffer.method.set .buffer.method.put .buffer.method.putf .buffer.method.get \
    .buffer.method.putcdata .buffer.method.reserve .buffer.method.commit .buffer.method.ref \
    .buffer.method.encode .buffer.method.decode .buffer.method.__gc .buffer.method.__tostring \
    .buffer.method.__len .buffer.new .buffer.encode .buffer.decode";

/// Functions of the VM's globals that must agree with a numbering before it is believed. A VM that
/// opened the base library alone has 26.
const WITNESSES_MIN: usize = 20;

/// Of the witnesses one in so many may disagree: programs do assign library functions to other
/// names of the library (`table.unpack = unpack`).
const DISAGREEING_ONE_IN: usize = 10;

/// Names of a VM's fast functions by their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastFunctionNames {
    names: Vec<Option<String>>,
    numbering_known: bool,
}

impl FastFunctionNames {
    /// The name as in `jit/vmdef.lua`, such as `string.format`. None for 0 (Lua functions), 1 (C
    /// functions), numbers that do not exist, and, in a VM whose numbering is not known, for
    /// functions that its globals do not show.
    pub fn name(&self, ffid: u8) -> Option<&str> {
        self.names.get(usize::from(ffid))?.as_deref()
    }

    /// False when the VM's numbering is none that is known, so that only functions that its globals
    /// show have names.
    pub fn numbering_known(&self) -> bool {
        self.numbering_known
    }
}

/// Reads which fast functions a VM has. Fails when its globals cannot be read.
pub fn fast_function_names(memory: &dyn Memory, vm: &Vm) -> Result<FastFunctionNames, MemoryError> {
    let witnesses = witnesses(memory, vm)?;
    let best = numberings().into_iter().max_by_key(|names| {
        witnesses
            .iter()
            .filter(|witness| witness.agrees(names))
            .count()
    });
    let Some(names) = best else {
        return Ok(live_only(&witnesses));
    };
    let known = witnesses
        .iter()
        .filter(|witness| names.contains(&witness.name.as_str()));
    let (agree, disagree): (Vec<_>, Vec<_>) = known.partition(|witness| witness.agrees(&names));
    if agree.len() < WITNESSES_MIN || disagree.len() * DISAGREEING_ONE_IN > agree.len() {
        return Ok(live_only(&witnesses));
    }
    let is_function = |ffid: usize| ffid >= FIRST_FAST_FUNCTION;
    let names = names.iter().enumerate();
    Ok(FastFunctionNames {
        names: names
            .map(|(ffid, name)| is_function(ffid).then(|| (*name).to_owned()))
            .collect(),
        numbering_known: true,
    })
}

/// `FF_assert`: 0 and 1 stand for Lua and C functions (lj_ff.h).
const FIRST_FAST_FUNCTION: usize = 2;

/// The numbering with every choice of the three marks.
fn numberings() -> Vec<Vec<&'static str>> {
    let marks = ['+', '5', '.'];
    let choices = (0..1 << marks.len()).map(|choice| {
        move |mark: char| {
            marks
                .iter()
                .position(|&m| m == mark)
                .is_some_and(|i| choice >> i & 1 != 0)
        }
    });
    choices
        .map(|chosen| {
            let names = NUMBERING.split_ascii_whitespace();
            names
                .filter_map(|marked| {
                    let name = marked.trim_start_matches(marks);
                    marked[..marked.len() - name.len()]
                        .chars()
                        .all(&chosen)
                        .then_some(name)
                })
                .collect()
        })
        .collect()
}

fn live_only(witnesses: &[Witness]) -> FastFunctionNames {
    let mut names = vec![None; usize::from(u8::MAX) + 1];
    for witness in witnesses {
        // The first name wins: globals come before libraries, and libraries in a fixed order.
        if let Some(name @ None) = names.get_mut(usize::from(witness.ffid)) {
            *name = Some(witness.name.clone());
        }
    }
    FastFunctionNames {
        names,
        numbering_known: false,
    }
}

/// A fast function as the VM's own globals name it.
struct Witness {
    name: String,
    ffid: u8,
}

impl Witness {
    fn agrees(&self, names: &[&str]) -> bool {
        names.get(usize::from(self.ffid)) == Some(&self.name.as_str())
    }
}

/// Libraries whose tables are globals, in the order of `luaL_openlibs`.
const LIBRARIES: [&str; 11] = [
    "coroutine",
    "table",
    "io",
    "os",
    "string",
    "bit",
    "math",
    "debug",
    "jit",
    "package",
    "thread",
];

fn witnesses(memory: &dyn Memory, vm: &Vm) -> Result<Vec<Witness>, MemoryError> {
    let globals = memory.read_u64(vm.main_thread.wrapping_add(vm.layout.thread.env))?;
    let globals = string_keys(memory, &vm.layout, globals & POINTER_MASK)?;
    let mut found = Vec::new();
    found.extend(
        globals
            .iter()
            .filter_map(|entry| witness(memory, &vm.layout, "", entry)),
    );
    for library in LIBRARIES {
        let table = globals.iter().find(|entry| entry.key == library);
        // A library that was replaced by something unreadable only gives no witnesses.
        let Some(Value::Table(table)) = table.map(|entry| entry.value) else {
            continue;
        };
        let Ok(functions) = string_keys(memory, &vm.layout, table) else {
            continue;
        };
        let prefix = format!("{library}.");
        found.extend(
            functions
                .iter()
                .filter_map(|entry| witness(memory, &vm.layout, &prefix, entry)),
        );
    }
    Ok(found)
}

fn witness(memory: &dyn Memory, layout: &Layout, prefix: &str, entry: &Entry) -> Option<Witness> {
    let Value::Function(function) = entry.value else {
        return None;
    };
    if memory.read_u8(function.wrapping_add(GCT)).ok()? != gct::FUNCTION {
        return None;
    }
    let ffid = memory
        .read_u8(function.wrapping_add(layout.function.ffid))
        .ok()?;
    (usize::from(ffid) >= FIRST_FAST_FUNCTION).then(|| Witness {
        name: format!("{prefix}{}", entry.key),
        ffid,
    })
}

struct Entry {
    key: String,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    Function(u64),
    Table(u64),
}

/// `GCtab` and `Node` (lj_obj.h), the same in all layouts.
const TABLE_NODE: u64 = 40;
const TABLE_HMASK: u64 = 52;
const NODE_SIZE: usize = 24;
const NODE_VALUE: u64 = 0;
const NODE_KEY: u64 = 8;

/// Slots of a table's hash part that are looked at. A program with more globals than this is rare;
/// the witnesses among the first ones do.
const NODES_MAX: u64 = 16_384;

/// Longest key that can be a library function.
const KEY_MAX: u64 = 32;

/// The top 17 bits of a tagged value (`LJ_TSTR`, `LJ_TFUNC`, `LJ_TTAB`; lj_obj.h).
const TAG_STRING: u64 = 0x1ffff - 4;
const TAG_FUNCTION: u64 = 0x1ffff - 8;
const TAG_TABLE: u64 = 0x1ffff - 11;

/// Functions and tables under string keys of a table's hash part.
fn string_keys(
    memory: &dyn Memory,
    layout: &Layout,
    table: u64,
) -> Result<Vec<Entry>, MemoryError> {
    if memory.read_u8(table.wrapping_add(GCT))? != gct::TABLE {
        return Err(MemoryError::Unmapped { address: table });
    }
    let slots = u64::from(memory.read_u32(table.wrapping_add(TABLE_HMASK))?) + 1;
    let nodes = memory.read_u64(table.wrapping_add(TABLE_NODE))? & POINTER_MASK;
    let len = slots.min(NODES_MAX) * NODE_SIZE as u64;
    let nodes = memory.read_vec(nodes, len, NODES_MAX * NODE_SIZE as u64)?;
    let mut entries = Vec::new();
    for node in nodes.chunks_exact(NODE_SIZE) {
        let (key, value) = (Block(node).u64(NODE_KEY), Block(node).u64(NODE_VALUE));
        let value = match value >> 47 {
            TAG_FUNCTION => Value::Function(value & POINTER_MASK),
            TAG_TABLE => Value::Table(value & POINTER_MASK),
            _ => continue,
        };
        if key >> 47 == TAG_STRING
            && let Some(key) = read_key(memory, layout, key & POINTER_MASK)
        {
            entries.push(Entry { key, value });
        }
    }
    Ok(entries)
}

fn read_key(memory: &dyn Memory, layout: &Layout, string: u64) -> Option<String> {
    let len = memory
        .read_u32(string.wrapping_add(layout.string.len))
        .ok()?;
    let data = string.wrapping_add(layout.string.data);
    String::from_utf8(memory.read_vec(data, u64::from(len), KEY_MAX).ok()?).ok()
}
