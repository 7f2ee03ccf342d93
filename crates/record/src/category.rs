//! The category of a running sample: what sort of code its thread was in.
//!
//! Told by where the machine code lies (program file, kind of file, function of LuaJIT's interpreter), by what LuaJIT says that
//! it does (`g->vmstate`, lj_obj.h `LJ_VMST_*`) and by the position on the stack, so that a library without symbols gives the
//! same answer as one with them. In this order, for the frames from the innermost to the first VM frame:
//!
//! 1. in the kernel: the part of the kernel;
//! 2. the VM itself: JIT code, trace exits, interpreter;
//! 3. the collector runs (`GC`), or a trace is left (`EXIT`), and LuaJIT's C code is on the stack: all that it called counts too;
//! 4. the compiler runs (`RECORD`, `OPT`, `ASM`, or begins to record; below `lj_vm_cpcall`), or what leads there from the interpreter; the
//!    state alone does not tell, because it stays `RECORD` while the interpreter executes the recorded instruction;
//! 5. the allocator: what `g->allocf` points to and calls, and small functions that call it;
//! 6. code that was called through the FFI, or LuaJIT's C functions of the `ffi` library;
//! 7. LuaJIT's C code: called by C code outside, the C API; called by the VM, the runtime;
//! 8. the kind of the file.
//!
//! Ways in which the answer may mislead: the collector's barriers set no state and count as runtime, as do conversions for FFI calls in traces: gc, allocator and ffi are then lower bounds, and the sample says so.
//! A C function called from a trace in the C library may be an FFI call or one of LuaJIT's own.

use std::ops::Range;

use rustc_hash::FxHashMap;
use throughline_profile::{Category, CategorySet, Classified, FrameId, FrameKind, Profile};
use throughline_target::Memory;
use throughline_wire::SampleRecord;

use crate::address_space::{AddressSpace, MappedImage, Place};
use crate::code_map::{CodeMap, FileRole};
use crate::kernel_part::kernel_part;
use crate::process::Process;
use crate::unwind::{NativeFrame, NativeKind};

/// Values of `g->vmstate`, which the VM stores inverted (lj_obj.h).
mod vm_state {
    pub const GC: i32 = !2;
    pub const EXIT: i32 = !3;
    pub const RECORD: i32 = !4;
    pub const OPT: i32 = !5;
    pub const ASM: i32 = !6;
}

/// Where `global_State` has `allocf` (lj_obj.h): first, or behind the table of strings in releases before it moved.
const ALLOCF: [u64; 2] = [0, 16];

/// Processes come and go; more allocators than this are not remembered.
const ALLOCATORS_MAX: usize = 4096;
/// What LuaJIT's C code may be that says nothing of itself.
const RUNTIME_MAY_BE: CategorySet = CategorySet::EMPTY
    .with(Category::Gc)
    .with(Category::Allocator)
    .with(Category::Ffi);

/// What is known for sorting samples.
#[derive(Default)]
pub struct Categories {
    /// Allocators by process and `global_State`: ranges of addresses in the process.
    allocators: FxHashMap<(u32, u64), Vec<Range<u64>>>,
    kernel: FxHashMap<Vec<FrameId>, Category>,
}

/// One sample being sorted.
struct Sorting<'a> {
    space: &'a AddressSpace,
    /// Frames from the innermost to the last before the VM frame.
    section: &'a [NativeFrame],
    /// Which of them are in code of LuaJIT.
    lua: Vec<bool>,
    /// The VM frame that called them.
    vm: Option<&'a NativeFrame>,
    /// Who entered the VM frame.
    vm_caller: Option<&'a NativeFrame>,
    state: Option<i32>,
    allocator: &'a [Range<u64>],
    /// The innermost Lua frame is a function of the `ffi` library.
    for_ffi: bool,
}

impl Categories {
    /// The category of a sample whose frames are known: kernel and user frames named, innermost first, and the native ones.
    pub fn of_sample(
        &mut self,
        profile: &Profile,
        process: &Process,
        record: &SampleRecord<'_>,
        kernel: &[FrameId],
        user: &[FrameId],
        native: &[NativeFrame],
    ) -> Classified {
        if !kernel.is_empty() {
            return Classified::surely(self.kernel_part(profile, kernel, user.first()));
        }
        if record.header.in_kernel != 0 {
            return unsure(Category::KernelOther, |c| c.subsystem().is_some());
        }
        let vm_at = native
            .iter()
            .position(|frame| frame.kind != NativeKind::Code);
        let (section, rest) = native.split_at(vm_at.unwrap_or(native.len()));
        let vm = record.header.vm;
        if section.is_empty() && vm_at.is_none() {
            return unsure(Category::Other, |c| c.subsystem().is_none());
        }
        if self.allocators.len() >= ALLOCATORS_MAX {
            self.allocators.clear();
        }
        let allocator = self
            .allocators
            .entry((record.header.pid, vm))
            .or_insert_with(|| allocator(process, vm));
        let builtin = builtin(profile, user).filter(|_| vm_at.is_some());
        Sorting {
            space: &process.space,
            section,
            lua: lua_frames(&process.space, section, builtin.is_some()),
            vm: rest.first(),
            vm_caller: rest.get(1),
            state: (vm != 0).then_some(record.header.vm_state),
            allocator,
            for_ffi: builtin.is_some_and(|name| name.starts_with("ffi.")),
        }
        .category()
    }

    /// Equal kernel stacks come again and again; looking at all their names each time would not.
    fn kernel_part(
        &mut self,
        profile: &Profile,
        frames: &[FrameId],
        user: Option<&FrameId>,
    ) -> Category {
        const KNOWN_MAX: usize = 1 << 16;
        let key: Vec<FrameId> = frames.iter().chain(user).copied().collect();
        if let Some(&known) = self.kernel.get(&key) {
            return known;
        }
        let name = |&frame: &FrameId| profile.strings.get(profile.frames.get(frame).name);
        let part = kernel_part(frames.iter().map(name), user.map(name));
        if self.kernel.len() >= KNOWN_MAX {
            self.kernel.clear();
        }
        self.kernel.insert(key, part);
        part
    }
}

impl Sorting<'_> {
    fn category(&self) -> Classified {
        let Some(leaf) = self.section.first() else {
            return Classified::surely(self.vm_category());
        };
        let lua_somewhere = self.lua.contains(&true);
        match self.state {
            Some(vm_state::GC) if lua_somewhere => return Classified::surely(Category::Gc),
            Some(vm_state::EXIT) if lua_somewhere => {
                return Classified::surely(Category::JitCompiler);
            }
            _ if self.is_compiling() => return Classified::surely(Category::JitCompiler),
            _ => {}
        }
        let run = self.run();
        if run
            .iter()
            .any(|frame| self.map(frame).is_some_and(|(map, at)| map.is_compiler(at)))
        {
            return Classified::surely(Category::JitCompiler);
        }
        if run.iter().any(|frame| self.is_allocator(frame)) {
            return Classified::surely(Category::Allocator);
        }
        if self.called_through_ffi() || self.for_ffi {
            return Classified::surely(Category::Ffi);
        }
        if self.lua.first() == Some(&true) {
            return self.lua_category(run);
        }
        self.file_category(leaf)
    }

    fn vm_category(&self) -> Category {
        match (self.vm.map(|vm| vm.kind), self.state) {
            (Some(NativeKind::Trace { .. }), _) => Category::Jit,
            // Subroutines of the interpreter's code that a trace calls.
            (_, Some(0..)) => Category::Jit,
            (_, Some(vm_state::EXIT)) => Category::JitCompiler,
            _ => Category::Interpreter,
        }
    }

    /// LuaJIT's C code, by who called it.
    fn lua_category(&self, run: &[NativeFrame]) -> Classified {
        let reaches_vm = run.len() == self.section.len() && self.vm.is_some();
        let entry = run.last();
        let by_api = entry
            .and_then(|frame| self.map(frame))
            .is_some_and(|(map, at)| map.is_api(at));
        let category = if reaches_vm || !by_api {
            Category::LuaRuntime
        } else {
            Category::LuaCApi
        };
        let mut may_be = RUNTIME_MAY_BE;
        if !reaches_vm && !by_api {
            may_be = may_be.with(Category::LuaCApi);
        }
        Classified { category, may_be }
    }

    fn file_category(&self, leaf: &NativeFrame) -> Classified {
        let role = self.map(leaf).map_or(FileRole::Other, |(map, _)| map.role);
        match role {
            // LuaJIT's own calls of the C library from a trace look like FFI calls.
            FileRole::Libc if self.is_called_by_trace() => Classified {
                category: Category::Libc,
                may_be: CategorySet::EMPTY.with(Category::Ffi),
            },
            FileRole::Libc => Classified::surely(Category::Libc),
            FileRole::Nginx if self.is_lua_module(leaf) => Classified::surely(Category::Module),
            FileRole::Nginx => Classified::surely(Category::Nginx),
            FileRole::Module => Classified::surely(Category::Module),
            FileRole::Other => match self.space.place(leaf.lookup) {
                // A trace's machine code that was not known yet when the stack was walked.
                Place::Anonymous if matches!(self.state, Some(0..)) => Classified {
                    category: Category::Other,
                    may_be: CategorySet::EMPTY.with(Category::Jit),
                },
                _ => Classified::surely(Category::Other),
            },
        }
    }

    /// The frames from the innermost up to the first that is neither LuaJIT's, nor its allocator's, nor the C library's below them.
    fn run(&self) -> &[NativeFrame] {
        let end = self
            .section
            .iter()
            .zip(&self.lua)
            .position(|(frame, lua)| !lua && !self.is_allocator(frame) && !self.is_libc(frame))
            .unwrap_or(self.section.len());
        &self.section[..end]
    }

    /// Code beyond LuaJIT that the FFI called: behind `lj_vm_ffi_call`, or right behind a trace.
    fn called_through_ffi(&self) -> bool {
        let behind_call = self.section.iter().any(|frame| {
            self.map(frame)
                .is_some_and(|(map, at)| map.lua().is_some_and(|lua| lua.is_ffi_call(at)))
        });
        behind_call
            || self.is_called_by_trace()
                && self.lua.last() == Some(&false)
                && self
                    .section
                    .last()
                    .is_some_and(|frame| !self.is_libc(frame))
    }

    fn is_called_by_trace(&self) -> bool {
        self.vm
            .is_some_and(|vm| matches!(vm.kind, NativeKind::Trace { .. }))
    }

    /// Whether the compiler called the section, by `lj_vm_cpcall`, where that is known: it says so by its state, except while a recording
    /// begins, or it entered the VM frame itself.
    fn is_compiling(&self) -> bool {
        let Some(vm) = self.vm else {
            return false;
        };
        let lua = self.map(vm).and_then(|(map, at)| Some((map.lua()?, at)));
        let by_cpcall = lua.and_then(|(lua, at)| lua.is_cpcall(at));
        let says_so = matches!(
            self.state,
            Some(vm_state::RECORD | vm_state::OPT | vm_state::ASM)
        );
        let entered = || {
            let caller = self.vm_caller.and_then(|caller| self.map(caller));
            caller.is_some_and(|(map, at)| map.is_compiler(at))
        };
        match by_cpcall {
            Some(true) => says_so || entered(),
            Some(false) => false,
            None => says_so,
        }
    }

    fn is_allocator(&self, frame: &NativeFrame) -> bool {
        self.map(frame)
            .is_some_and(|(map, at)| map.is_allocation(at))
            || self
                .allocator
                .iter()
                .any(|range| range.contains(&frame.lookup))
    }

    fn is_libc(&self, frame: &NativeFrame) -> bool {
        self.map(frame)
            .is_some_and(|(map, _)| map.role == FileRole::Libc)
    }

    /// Lua modules that are linked into nginx: their functions have names of their own, if nginx has not been stripped of its exports.
    fn is_lua_module(&self, frame: &NativeFrame) -> bool {
        let Some((mapped, at)) = image(self.space, frame.lookup) else {
            return false;
        };
        let symbols = mapped.image.as_ref().map(|image| image.symbols());
        match symbols {
            Ok(Ok(symbols)) => match symbols.lookup(at) {
                throughline_symbols::Lookup::Named { function, .. } => {
                    ["ngx_http_lua_", "ngx_stream_lua_", "ngx_meta_lua_"]
                        .iter()
                        .any(|prefix| function.raw.starts_with(prefix))
                }
                throughline_symbols::Lookup::Unnamed { .. } => false,
            },
            _ => false,
        }
    }

    fn map(&self, frame: &NativeFrame) -> Option<(&CodeMap, u64)> {
        code_map(self.space, frame.lookup)
    }
}

/// The file at an address, and the file's own address.
fn image(space: &AddressSpace, address: u64) -> Option<(&MappedImage, u64)> {
    match space.place(address) {
        Place::Image(mapped) => Some((mapped, address.wrapping_sub(mapped.bias))),
        Place::Anonymous | Place::Unknown => None,
    }
}

fn code_map(space: &AddressSpace, address: u64) -> Option<(&CodeMap, u64)> {
    let (mapped, at) = image(space, address)?;
    let map = mapped.image.as_ref().ok()?.code_map(&mapped.path);
    Some((map, at))
}

/// A category, with all that `others` accepts as what it may be.
fn unsure(category: Category, others: impl Fn(Category) -> bool) -> Classified {
    let may_be = Category::ALL
        .into_iter()
        .filter(|&other| other != category && others(other))
        .fold(CategorySet::EMPTY, CategorySet::with);
    Classified { category, may_be }
}

/// Which frames of a section are in code of LuaJIT. In a file that holds more than LuaJIT not all of its functions are known; what they call
/// in the same file is theirs, and so is what the VM calls for a function of its own library (`builtin`).
fn lua_frames(space: &AddressSpace, section: &[NativeFrame], builtin: bool) -> Vec<bool> {
    let mut lua = vec![false; section.len()];
    let mut caller: Option<(u64, bool)> = None;
    for (frame, lua) in section.iter().zip(&mut lua).rev() {
        let Some((mapped, at)) = image(space, frame.lookup) else {
            caller = None;
            continue;
        };
        let map = mapped
            .image
            .as_ref()
            .ok()
            .map(|image| image.code_map(&mapped.path));
        let Some((map, code)) = map.and_then(|map| Some((map, map.lua()?))) else {
            caller = None;
            continue;
        };
        let by_lua = caller.is_some_and(|(file, lua)| lua && file == mapped.start);
        *lua = map.is_lua(at) || by_lua || frame_is_outermost(section, frame) && builtin;
        // What lies behind the FFI's call is anybody's.
        caller = Some((mapped.start, *lua && !code.is_ffi_call(at)));
    }
    lua
}

fn frame_is_outermost(section: &[NativeFrame], frame: &NativeFrame) -> bool {
    section.last().is_some_and(|last| std::ptr::eq(last, frame))
}

/// Name of the innermost Lua function, when it is one of LuaJIT's own library that has called C (`string.gsub`, `ffi.meta.__index`).
fn builtin<'a>(profile: &'a Profile, user: &[FrameId]) -> Option<&'a str> {
    user.iter()
        .map(|&frame| profile.frames.get(frame))
        .find(|frame| frame.kind.is_lua())
        .filter(|frame| frame.kind == FrameKind::LuaBuiltin)
        .map(|frame| profile.strings.get(frame.name))
}

/// The code of a VM's allocator. In LuaJIT's own file that is `lj_alloc_f` with all that it calls; of a host's allocator only the function
/// itself is taken, because what that calls may be anything.
fn allocator(process: &Process, global_state: u64) -> Vec<Range<u64>> {
    if global_state == 0 {
        return Vec::new();
    }
    for offset in ALLOCF {
        if let Ok(allocf) = process.memory.read_u64(global_state.wrapping_add(offset))
            && let Some(found) = functions_of(&process.space, allocf)
        {
            return found;
        }
    }
    Vec::new()
}

/// The functions of an allocator; `None` when no function begins at the address.
fn functions_of(space: &AddressSpace, allocf: u64) -> Option<Vec<Range<u64>>> {
    let (mapped, at) = image(space, allocf)?;
    let image = mapped.image.as_ref().ok()?;
    let map = image.code_map(&mapped.path);
    let own = map.function(at).filter(|&(start, _)| start == at)?;
    let functions = if map.lua().is_some() {
        image.functions_below(at)
    } else {
        vec![own]
    };
    let in_process = |at: u64| at.wrapping_add(mapped.bias);
    Some(
        functions
            .into_iter()
            .map(|(start, end)| in_process(start)..in_process(end))
            .collect(),
    )
}
