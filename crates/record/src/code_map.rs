//! What the functions of a program file are for, as far as a file without internal names tells: its exports, where its functions
//! start according to the unwind table, and which of them call each other directly.
//!
//! Used to sort samples into categories. Names that only a symbol table knows are not looked at, so that a stripped library and
//! one with symbols give the same answer.

use std::ops::Range;

use object::{Object, ObjectSymbol};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many direct calls from the interpreter to the function that enters the compiler: `lj_dispatch_stitch`, `lj_trace_stitch`,
/// `lj_trace_ins`, `lj_vm_cpcall` (lj_dispatch.c, lj_trace.c).
const CALLS_TO_COMPILER_MAX: usize = 4;
/// Size of `lj_vm_cpcall` (vm_x64.dasc), generously; what follows it calls no C code.
const CPCALL_BYTES: u64 = 128;
/// Size up to which a function that calls the allocator does nothing else: `lj_mem_realloc` and its like take about 100 bytes,
/// `lj_tab_resize` 500.
const ALLOCATION_BYTES_MAX: u64 = 192;
/// What a file exports that holds nothing but LuaJIT: its API, the linker's marks, and what OpenResty's fork exports without need
/// (lj_ffrecord.c, lj_str_hash.c). A program has a `main` besides, and may hold anything.
const OWN_EXPORTS: [&str; 4] = ["lua", "_", "recff_", "str_hash_"];
/// Files with more functions than this are not looked through.
const FUNCTIONS_MAX: usize = 1 << 20;

/// What sort of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// The C library and its parts, the loader, the vDSO.
    Libc,
    /// nginx, or a program made from it.
    Nginx,
    /// A module of nginx, or one that Lua's `require` loads.
    Module,
    /// Anything else.
    Other,
}

/// Functions of LuaJIT in a file that holds it; addresses are the file's own.
#[derive(Debug, Default)]
pub struct LuaCode {
    /// The file holds nothing else.
    whole_file: bool,
    /// Starts of functions that belong to LuaJIT, in a file that holds more.
    functions: FxHashSet<u64>,
    /// Starts of the functions of the C API.
    api: FxHashSet<u64>,
    /// Starts of the functions through which the interpreter enters the compiler.
    compiler: FxHashSet<u64>,
    /// Starts of the small functions that call through `g->allocf`: `lj_mem_realloc`, `lj_mem_newgco`, and those that free one object.
    allocation: FxHashSet<u64>,
    /// `lj_vm_cpcall`, under which the compiler runs; `None` when it was not found.
    cpcall: Option<Range<u64>>,
    /// `lj_vm_ffi_call`: the only unwind entry of the interpreter's object file beside the interpreter's own.
    ffi_call: Option<Range<u64>>,
}

/// What is known of a file's code.
#[derive(Debug)]
pub struct CodeMap {
    /// What sort of file.
    pub role: FileRole,
    /// Function extents in ascending order, from the unwind table.
    extents: Vec<(u64, u64)>,
    lua: Option<LuaCode>,
}

/// The parts of a file that the analysis reads.
pub struct Code<'a> {
    /// The whole file.
    pub file: &'a [u8],
    /// Executable sections: addresses, and where their bytes are in the file.
    pub executable: &'a [(Range<u64>, Range<usize>)],
    /// Extents of functions, ascending.
    pub extents: Vec<(u64, u64)>,
    /// LuaJIT's interpreter, if the file has it.
    pub interpreter: Option<Range<u64>>,
    /// Last part of its path.
    pub name: &'a str,
}

impl CodeMap {
    /// Looks through a file.
    #[must_use]
    pub fn of(mut code: Code<'_>) -> Self {
        code.extents.truncate(FUNCTIONS_MAX);
        let exports = exports(code.file);
        let lua = code
            .interpreter
            .clone()
            .map(|interpreter| LuaCode::of(&code, &exports, &interpreter));
        Self {
            role: role(code.name, &exports),
            extents: code.extents,
            lua,
        }
    }

    /// The extent of the function at an address.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        extent(&self.extents, address)
    }

    /// LuaJIT's own parts, when the file holds it.
    #[must_use]
    pub fn lua(&self) -> Option<&LuaCode> {
        self.lua.as_ref()
    }

    /// Whether the function at an address belongs to LuaJIT.
    #[must_use]
    pub fn is_lua(&self, address: u64) -> bool {
        self.lua.as_ref().is_some_and(|lua| {
            lua.whole_file || self.starts_in(address, &lua.functions) || lua.is_ffi_call(address)
        })
    }

    /// Whether the function at an address is one of the C API.
    #[must_use]
    pub fn is_api(&self, address: u64) -> bool {
        let api = self.lua.as_ref().map(|lua| &lua.api);
        api.is_some_and(|api| self.starts_in(address, api))
    }

    /// Whether the function at an address leads from the interpreter into the compiler.
    #[must_use]
    pub fn is_compiler(&self, address: u64) -> bool {
        let compiler = self.lua.as_ref().map(|lua| &lua.compiler);
        compiler.is_some_and(|compiler| self.starts_in(address, compiler))
    }

    /// Whether the function at an address does no more than call the allocator.
    #[must_use]
    pub fn is_allocation(&self, address: u64) -> bool {
        let allocation = self.lua.as_ref().map(|lua| &lua.allocation);
        allocation.is_some_and(|allocation| self.starts_in(address, allocation))
    }

    fn starts_in(&self, address: u64, starts: &FxHashSet<u64>) -> bool {
        self.function(address)
            .is_some_and(|(start, _)| starts.contains(&start))
    }
}

impl LuaCode {
    fn of(code: &Code<'_>, exports: &[(String, u64)], interpreter: &Range<u64>) -> Self {
        let export = |wanted: &str| {
            let found = exports.iter().find(|(name, _)| name == wanted);
            found.map(|&(_, address)| address)
        };
        let calls = |from: u64| {
            let extent = extent(&code.extents, from);
            extent.map_or_else(Vec::new, |(start, end)| direct_targets(code, start..end))
        };
        let cpcall = export("lua_cpcall").and_then(|lua_cpcall| {
            let targets = calls(lua_cpcall);
            let start = targets.into_iter().find(|at| interpreter.contains(at))?;
            Some(start..start + CPCALL_BYTES)
        });
        let api: FxHashSet<u64> = exports
            .iter()
            .filter(|(name, _)| name.starts_with("lua_") || name.starts_with("luaL_"))
            .map(|&(_, address)| address)
            .collect();
        let ffi_call = extent(&code.extents, interpreter.end)
            .filter(|&(start, _)| start == interpreter.end)
            .map(|(start, end)| start..end);
        let whole_file = export("lua_pcall").is_some()
            && exports
                .iter()
                .all(|(name, _)| OWN_EXPORTS.iter().any(|own| name.starts_with(own)));
        let graph = Graph::of(code, interpreter);
        let from_asm = graph.functions_among(direct_targets(code, interpreter.clone()));
        let compiler = cpcall.as_ref().map_or_else(FxHashSet::default, |cpcall| {
            graph.between(&from_asm, cpcall.start, CALLS_TO_COMPILER_MAX)
        });
        let functions = if whole_file {
            FxHashSet::default()
        } else {
            let called = graph.below(from_asm.iter().chain(&api).copied());
            let exported = exports.iter().filter(|(name, _)| name.starts_with("lua"));
            let known = exported.map(|&(_, address)| address);
            let between = span(code, interpreter, known);
            called.into_iter().chain(between).collect()
        };
        let allocation = code
            .extents
            .iter()
            .filter(|&&(start, end)| {
                end - start <= ALLOCATION_BYTES_MAX
                    && start != interpreter.end
                    && (whole_file || functions.contains(&start))
                    && calls_allocf(bytes(code, &(start..end)))
            })
            .map(|&(start, _)| start)
            .collect();
        Self {
            whole_file,
            functions,
            api,
            compiler,
            allocation,
            cpcall,
            ffi_call,
        }
    }

    /// Whether an address of the interpreter is in `lj_vm_cpcall`; `None` when that was not found.
    #[must_use]
    pub fn is_cpcall(&self, address: u64) -> Option<bool> {
        Some(self.cpcall.as_ref()?.contains(&address))
    }

    /// Whether an address is in the function that calls through the FFI.
    #[must_use]
    pub fn is_ffi_call(&self, address: u64) -> bool {
        self.ffi_call
            .as_ref()
            .is_some_and(|range| range.contains(&address))
    }
}

/// The function that starts at `start` and all that it calls directly, transitively, in its file.
#[must_use]
pub fn closure(code: &Code<'_>, start: u64) -> Vec<(u64, u64)> {
    let none = 0..0;
    let mut found: Vec<u64> = Graph::of(code, &none).below([start]).into_iter().collect();
    found.sort_unstable();
    found
        .into_iter()
        .filter_map(|start| extent(&code.extents, start))
        .collect()
}

/// Which function calls or jumps to which directly.
struct Graph {
    calls: FxHashMap<u64, Vec<u64>>,
}

impl Graph {
    /// Functions of the unwind table but the interpreter itself, whose edges would lead everywhere.
    fn of(code: &Code<'_>, interpreter: &Range<u64>) -> Self {
        let starts: FxHashSet<u64> = code
            .extents
            .iter()
            .filter(|&&(start, end)| !is_stub(code, start, end) && !interpreter.contains(&start))
            .map(|&(start, _)| start)
            .collect();
        let calls = code
            .extents
            .iter()
            .filter(|(start, _)| starts.contains(start))
            .map(|&(start, end)| {
                let targets = direct_targets(code, start..end).into_iter();
                let kept = targets.filter(|to| starts.contains(to) || interpreter.contains(to));
                (start, kept.collect())
            })
            .collect();
        Self { calls }
    }

    fn functions_among(&self, targets: Vec<u64>) -> FxHashSet<u64> {
        targets
            .into_iter()
            .filter(|target| self.calls.contains_key(target))
            .collect()
    }

    /// All that is reached from some functions, themselves included.
    fn below(&self, from: impl IntoIterator<Item = u64>) -> FxHashSet<u64> {
        let mut todo: Vec<u64> = from.into_iter().collect();
        let mut seen = FxHashSet::default();
        while let Some(at) = todo.pop() {
            let Some(calls) = self.calls.get(&at) else {
                continue;
            };
            if seen.insert(at) {
                todo.extend(calls);
            }
        }
        seen
    }

    /// Functions on a way of at most so many calls from one of `from` to `to`.
    fn between(&self, from: &FxHashSet<u64>, to: u64, calls_max: usize) -> FxHashSet<u64> {
        let mut callers: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
        for (&caller, calls) in &self.calls {
            for &callee in calls {
                callers.entry(callee).or_default().push(caller);
            }
        }
        // Distance to the goal, level by level, upwards.
        let mut distance: FxHashMap<u64, usize> = FxHashMap::default();
        let mut level = vec![to];
        for steps in 1..=calls_max {
            let mut next = Vec::new();
            for at in level {
                for &caller in callers.get(&at).into_iter().flatten() {
                    distance.entry(caller).or_insert_with(|| {
                        next.push(caller);
                        steps
                    });
                }
            }
            level = next;
        }
        // Down again from the interpreter, along ever smaller distances.
        let mut found = FxHashSet::default();
        let mut todo: Vec<u64> = from.iter().copied().collect();
        while let Some(at) = todo.pop() {
            let Some(&left) = distance.get(&at) else {
                continue;
            };
            if !found.insert(at) {
                continue;
            }
            let calls = self.calls.get(&at).into_iter().flatten();
            todo.extend(calls.filter(|call| distance.get(call).is_some_and(|&d| d < left)));
        }
        found
    }
}

/// Functions between those that are surely LuaJIT's: the linker puts the members of an archive side by side. Some are reached through
/// tables alone, as the library functions and what only traces call.
fn span(
    code: &Code<'_>,
    interpreter: &Range<u64>,
    known: impl Iterator<Item = u64>,
) -> impl Iterator<Item = u64> {
    let (first, last) = known.fold((interpreter.start, interpreter.start), |(a, b), at| {
        (a.min(at), b.max(at))
    });
    let starts = code.extents.iter().map(|&(start, _)| start);
    starts.filter(move |start| (first..=last).contains(start))
}

/// Whether there is a call through a register's target at displacement 0 or 16, FF /2 (Intel SDM, CALL), where `global_State` has
/// `allocf` (lj_obj.h; 16 before `strhash` moved in 2020); in functions as small as these nothing else is called so.
fn calls_allocf(bytes: &[u8]) -> bool {
    const ALLOCF_EARLIER: u8 = 16;
    bytes.windows(4).any(|code| match code {
        // With a base register alone; 4 stands for one more byte (24 for r12), 5 for an address in the file.
        [0xff, modrm @ 0x10..=0x17, next, _] => match modrm & 7 {
            4 => *next == 0x24,
            5 => false,
            _ => true,
        },
        [0xff, 0x54, 0x24, displacement] => *displacement == ALLOCF_EARLIER,
        [0xff, 0x50..=0x57, displacement, _] => *displacement == ALLOCF_EARLIER,
        _ => false,
    })
}

fn extent(extents: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    let after = extents.partition_point(|&(start, _)| start <= address);
    let found = *extents.get(after.checked_sub(1)?)?;
    (address < found.1).then_some(found)
}

/// The bytes of an address range, as far as they lie in one executable section.
fn bytes<'a>(code: &Code<'a>, range: &Range<u64>) -> &'a [u8] {
    let section = code
        .executable
        .iter()
        .find(|(addresses, _)| addresses.contains(&range.start));
    let Some((addresses, place)) = section else {
        return &[];
    };
    let from = place.start + (range.start - addresses.start) as usize;
    let len = range.end.min(addresses.end).saturating_sub(range.start) as usize;
    code.file
        .get(from..from.saturating_add(len).min(place.end))
        .unwrap_or_default()
}

/// Targets of calls and jumps with a 32-bit displacement (E8, E9, 0F 80 to 0F 8F). Every byte is tried as an opcode: what is none
/// leads to the start of a function only by chance, and callers look for those only.
fn direct_targets(code: &Code<'_>, range: Range<u64>) -> Vec<u64> {
    let bytes = bytes(code, &range);
    let mut targets = Vec::new();
    for (at, window) in bytes.windows(5).enumerate() {
        let after_0f = at > 0 && bytes.get(at - 1) == Some(&0x0f);
        if let [opcode, displacement @ ..] = window
            && (matches!(opcode, 0xe8 | 0xe9) || after_0f && opcode & 0xf0 == 0x80)
            && let Ok(displacement) = <[u8; 4]>::try_from(displacement)
        {
            let next = range.start.wrapping_add(at as u64 + 5);
            targets.push(next.wrapping_add_signed(i64::from(i32::from_le_bytes(displacement))));
        }
    }
    targets
}

/// A function that consists of a jump through memory leads into another file (a linkage stub, with or without `endbr64`).
fn is_stub(code: &Code<'_>, start: u64, end: u64) -> bool {
    let bytes = bytes(code, &(start..end));
    let body = bytes
        .strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa])
        .unwrap_or(bytes);
    let body = body.strip_prefix(&[0xf2]).unwrap_or(body);
    body.starts_with(&[0xff, 0x25]) || body.starts_with(&[0xff, 0x35])
}

/// Functions that the file exports.
fn exports(file: &[u8]) -> Vec<(String, u64)> {
    let Ok(elf) = object::File::parse(file) else {
        return Vec::new();
    };
    elf.dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .collect()
}

fn role(name: &str, exports: &[(String, u64)]) -> FileRole {
    const LIBC: [&str; 9] = [
        "libc.so",
        "libc-2",
        "libm.so",
        "libm-2",
        "libpthread",
        "libdl",
        "librt",
        "ld-linux",
        "ld-musl",
    ];
    let has = |prefix: &str| exports.iter().any(|(name, _)| name.starts_with(prefix));
    if name == "[vdso]" || LIBC.iter().any(|prefix| name.starts_with(prefix)) {
        FileRole::Libc
    } else if has("ngx_http_lua_") && name.contains(".so")
        || name.starts_with("ngx_") && name.contains(".so")
        || has("luaopen_") && !has("lua_pcall")
    {
        FileRole::Module
    } else if has("ngx_") || name == "nginx" || name == "openresty" {
        FileRole::Nginx
    } else {
        FileRole::Other
    }
}
