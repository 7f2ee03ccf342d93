//! Finding the VMs of a process by the shape of their main thread in memory.

use super::layout::{GLREF, JitParams, LAYOUTS, Layout, THREAD_SIZES};
use super::{GCT, gct};
use crate::maps::{Mapping, find_mapping};
use crate::memory::{Block, Memory, MemoryError};

/// Bytes that one scan reads at most. 4 GiB take one to two seconds; what is left out is counted.
pub const SCAN_LIMIT: u64 = 4 << 30;

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// Bytes of a candidate thread that the scan itself looks at; chunks overlap by so much.
const CANDIDATE: usize = 24;

/// VMs and refusals that one scan keeps: memory that is full of look-alikes is hostile.
const FOUND_MAX: usize = 256;

/// A VM that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vm {
    /// Address of its `global_State`.
    pub global_state: u64,
    /// Address of its main thread, a `lua_State`.
    pub main_thread: u64,
    /// Where its fields lie.
    pub layout: Layout,
    /// Address of the first bytecode's handler: lies in the interpreter, so the mapping around it
    /// is the library or program that the VM belongs to.
    pub first_handler: u64,
}

impl Vm {
    /// Address of its `jit_State`.
    pub fn jit_state(&self) -> u64 {
        self.global_state.wrapping_add(self.layout.global.jit_state)
    }

    /// Address of its dispatch table: the value of r14 in the interpreter and in machine code.
    pub fn dispatch(&self) -> u64 {
        self.global_state.wrapping_add(self.layout.global.dispatch)
    }

    /// True while the VM still lies where it was found.
    pub fn is_alive(&self, memory: &dyn Memory) -> bool {
        memory.read_u64(self.global_state.wrapping_add(self.layout.global.mainthref))
            == Ok(self.main_thread)
            && memory.read_u64(self.main_thread.wrapping_add(self.layout.thread.glref))
                == Ok(self.global_state)
    }
}

/// Why something that looks like a VM cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmReject {
    /// A LuaJIT with 32-bit references.
    NotGc64,
    /// A LuaJIT of no version that this crate knows, or a VM that is being created, torn down or
    /// overwritten: what lies at the offsets of every known version cannot be.
    UnknownLayout {
        /// `sizeof(lua_State)` as seen.
        thread_size: u64,
        /// The known version that fits best, and which field of it does not fit.
        nearest: Option<(&'static str, &'static str)>,
    },
}

impl std::fmt::Display for VmReject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VmReject::NotGc64 => f.write_str(
                "this LuaJIT is built without GC64 (32-bit references); only GC64 VMs can be read",
            ),
            VmReject::UnknownLayout {
                thread_size,
                nearest: None,
            } => write!(
                f,
                "this LuaJIT is of no known version (its threads have {thread_size} bytes)"
            ),
            VmReject::UnknownLayout {
                nearest: Some((version, what)),
                ..
            } => {
                write!(
                    f,
                    "this LuaJIT is of no known version (nearest: {version}, but {what})"
                )
            }
        }
    }
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmScan {
    /// VMs, by address.
    pub vms: Vec<Vm>,
    /// Address of the main thread of what looked like a VM, and why it was refused.
    pub rejected: Vec<(u64, VmReject)>,
    /// Bytes that were read.
    pub bytes_scanned: u64,
    /// Bytes of candidate mappings that could not be read or lay past [`SCAN_LIMIT`].
    pub bytes_skipped: u64,
}

/// Looks for LuaJIT VMs in the process's own writable memory.
///
/// A main thread is an 8-aligned address A with the tag of a thread whose `glref` points a little
/// behind A (both lie in one `GG_State`) to a `global_State` whose `mainthref` is A again. Fails
/// only when no memory can be read at all.
pub fn find_vms(memory: &dyn Memory, mappings: &[Mapping]) -> Result<VmScan, MemoryError> {
    let mut scan = VmScan::default();
    let mut buffer = vec![0; CHUNK as usize + CANDIDATE];
    let own = |mapping: &&Mapping| {
        mapping.is_anonymous() && mapping.permissions.read && mapping.permissions.write
    };
    for mapping in mappings.iter().filter(own) {
        scan_mapping(memory, mappings, mapping, &mut buffer, &mut scan)?;
    }
    scan.vms.sort_by_key(|vm| vm.global_state);
    scan.vms.dedup_by_key(|vm| vm.global_state);
    Ok(scan)
}

fn scan_mapping(
    memory: &dyn Memory,
    mappings: &[Mapping],
    mapping: &Mapping,
    buffer: &mut [u8],
    scan: &mut VmScan,
) -> Result<(), MemoryError> {
    let mut at = mapping.start.next_multiple_of(8);
    while at < mapping.end {
        let left = mapping.end - at;
        let len = left.min(CHUNK + CANDIDATE as u64);
        let Some(bytes) = buffer.get_mut(..len as usize) else {
            return Ok(());
        };
        if scan.bytes_scanned >= SCAN_LIMIT || scan.vms.len() + scan.rejected.len() >= FOUND_MAX {
            scan.bytes_skipped += left;
            return Ok(());
        }
        match memory.read(at, bytes) {
            Ok(()) => {
                scan.bytes_scanned += len.min(CHUNK);
                for (thread, global) in candidates(at, bytes) {
                    consider(memory, mappings, thread, global, scan);
                }
            }
            Err(error) if error.is_final() => return Err(error),
            Err(_) => scan.bytes_skipped += len.min(CHUNK),
        }
        at += CHUNK;
    }
    Ok(())
}

/// `sizeof(lua_State)` with 32-bit references: 64 in mainline, up to 16 more in a fork.
const COMPACT_THREAD_SIZES: std::ops::RangeInclusive<u64> = 64..=80;

/// `gct` and `glref` in a `lua_State` with 32-bit references.
const COMPACT_GCT: u64 = 5;
const COMPACT_GLREF: u64 = 8;

/// Where `mainthref` can lie in a `global_State` with 32-bit references: at 140 in 2.1, elsewhere
/// among the first fields in 2.0.
const COMPACT_MAINTHREF: std::ops::Range<u64> = 64..256;

enum GlobalCandidate {
    Gc64(u64),
    Compact(u64),
}

/// Every (thread, global_State) in `bytes` that the first 24 bytes do not rule out.
///
/// This loop sees every word of the target's heap, so it does one subtraction and one comparison
/// for each, and looks closer only at the few that point a little behind themselves.
fn candidates(start: u64, bytes: &[u8]) -> Vec<(u64, GlobalCandidate)> {
    let mut found = Vec::new();
    let (smallest, largest) = (*THREAD_SIZES.start(), *THREAD_SIZES.end());
    let mut thread = start.wrapping_sub(GLREF);
    for word in bytes.chunks_exact(8) {
        let global = u64::from_le_bytes(word.try_into().unwrap_or_default());
        if global.wrapping_sub(thread).wrapping_sub(smallest) <= largest - smallest
            && byte_at(bytes, thread.wrapping_add(GCT).wrapping_sub(start)) == Some(gct::THREAD)
        {
            found.push((thread, GlobalCandidate::Gc64(global)));
        }
        thread = thread.wrapping_add(8);
    }
    if start <= u64::from(u32::MAX) {
        compact_candidates(start, bytes, &mut found);
    }
    found
}

/// Threads with 32-bit references lie in the first 4 GiB.
fn compact_candidates(start: u64, bytes: &[u8], found: &mut Vec<(u64, GlobalCandidate)>) {
    for (index, fields) in bytes.windows(CANDIDATE).step_by(8).enumerate() {
        let fields = Block(fields);
        let thread = start + 8 * index as u64;
        let global = u64::from(fields.u32(COMPACT_GLREF));
        if COMPACT_THREAD_SIZES.contains(&global.wrapping_sub(thread))
            && fields.u8(COMPACT_GCT) == gct::THREAD
        {
            found.push((thread, GlobalCandidate::Compact(global)));
        }
    }
}

fn byte_at(bytes: &[u8], offset: u64) -> Option<u8> {
    bytes.get(usize::try_from(offset).ok()?).copied()
}

fn consider(
    memory: &dyn Memory,
    mappings: &[Mapping],
    thread: u64,
    global: GlobalCandidate,
    scan: &mut VmScan,
) {
    match global {
        GlobalCandidate::Gc64(global) => {
            let is_main = |layout: &Layout| {
                memory.read_u64(global.wrapping_add(layout.global.mainthref)) == Ok(thread)
            };
            if !LAYOUTS.iter().any(is_main) {
                return;
            }
            match recognise(memory, mappings, thread, global) {
                Ok(vm) => scan.vms.push(vm),
                Err(reject) => scan.rejected.push((thread, reject)),
            }
        }
        GlobalCandidate::Compact(global) => {
            let len = COMPACT_MAINTHREF.end - COMPACT_MAINTHREF.start;
            let fields = memory.read_vec(global.wrapping_add(COMPACT_MAINTHREF.start), len, len);
            let is_main = |field: &[u8]| u64::from(Block(field).u32(0)) == thread;
            if fields.is_ok_and(|fields| fields.chunks_exact(4).any(is_main)) {
                scan.rejected.push((thread, VmReject::NotGc64));
            }
        }
    }
}

/// Picks the row of the table that a VM fits, by what lies in it.
fn recognise(
    memory: &dyn Memory,
    mappings: &[Mapping],
    thread: u64,
    global: u64,
) -> Result<Vm, VmReject> {
    let thread_size = global - thread;
    let mut nearest: Option<(Checks, &'static str)> = None;
    for layout in LAYOUTS
        .iter()
        .filter(|layout| layout.thread.size == thread_size)
    {
        let mut vm = Vm {
            global_state: global,
            main_thread: thread,
            layout: *layout,
            first_handler: 0,
        };
        match verify(memory, mappings, &mut vm) {
            Ok(()) => return Ok(vm),
            Err(passed) if nearest.is_none_or(|(best, _)| passed > best) => {
                nearest = Some((passed, layout.name));
            }
            Err(_) => {}
        }
    }
    let nearest = nearest.map(|(passed, name)| (name, passed.next_failed()));
    Err(VmReject::UnknownLayout {
        thread_size,
        nearest,
    })
}

/// The last of the checks that a layout passed, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Checks {
    None,
    MainThread,
    CurrentThread,
    Stack,
    Dispatch,
}

impl Checks {
    fn next_failed(self) -> &'static str {
        match self {
            Checks::None => "its main thread is not where that version has it",
            Checks::MainThread => "its current thread is not one of its threads",
            Checks::CurrentThread => "the bounds of its main stack make no sense",
            Checks::Stack => "its dispatch table holds no addresses of one interpreter",
            Checks::Dispatch => "its JIT parameters make no sense",
        }
    }
}

/// Checks the invariants of a running VM under its layout, and fills in what they tell.
fn verify(memory: &dyn Memory, mappings: &[Mapping], vm: &mut Vm) -> Result<(), Checks> {
    let (global, thread) = (&vm.layout.global, &vm.layout.thread);
    let pointer = |offset: u64| memory.read_u64(vm.global_state.wrapping_add(offset)).ok();
    if pointer(global.mainthref) != Some(vm.main_thread) {
        return Err(Checks::None);
    }
    let belongs = |other: u64| {
        memory.read_u64(other.wrapping_add(thread.glref)) == Ok(vm.global_state)
            && memory.read_u8(other.wrapping_add(GCT)) == Ok(gct::THREAD)
    };
    if !pointer(global.cur_l).is_some_and(belongs) {
        return Err(Checks::MainThread);
    }
    let main = memory.read_vec(vm.main_thread, thread.size, *THREAD_SIZES.end());
    let Ok(main) = main else {
        return Err(Checks::CurrentThread);
    };
    let main = Block(&main);
    let stack = main.u64(thread.stack);
    let stack_end = stack.saturating_add(8 * u64::from(main.u32(thread.stacksize)));
    if !(stack..stack_end).contains(&main.u64(thread.maxstack)) {
        return Err(Checks::CurrentThread);
    }
    vm.first_handler = first_handler(memory, mappings, vm).ok_or(Checks::Stack)?;
    vm.layout.jit.param = params(memory, vm).ok_or(Checks::Dispatch)?;
    Ok(())
}

/// Handlers are found by 16-bit offsets from the start of the interpreter (`lj_bc_ofs`), so all lie
/// within 64 KiB, and they stand there in the order of the bytecodes: a table read one entry too
/// early begins with a fast function, which stands behind them all, and one read too late ends in
/// what is no address. Only the static copy is looked at: hooks change the rest.
fn first_handler(memory: &dyn Memory, mappings: &[Mapping], vm: &Vm) -> Option<u64> {
    let table = vm
        .dispatch()
        .wrapping_add(8 * vm.layout.dynamic_dispatch_len());
    let len = 8 * u64::from(vm.layout.opcodes.funcf);
    let table = memory.read_vec(table, len, len).ok()?;
    let handlers: Vec<u64> = table
        .chunks_exact(8)
        .map(|handler| Block(handler).u64(0))
        .collect();
    let (&first, &last) = (handlers.first()?, handlers.last()?);
    let code = find_mapping(mappings, first).filter(|mapping| mapping.permissions.execute)?;
    let one_interpreter = handlers.is_sorted()
        && first < last
        && last - first <= u64::from(u16::MAX)
        && code.contains(last);
    one_interpreter.then_some(first)
}

/// Indexes into `jit_State.param` (`JIT_PARAMDEF`, lj_jit.h).
const MAXTRACE: u64 = 0;
const HOTLOOP: u64 = 6;
const MAXMCODE: u64 = 14;
const PARAMS: u64 = 15;

/// Rows that differ only in where the array lies are four bytes apart. Read too late, `maxmcode` is
/// the padding behind the array, which is 0: so the row with the later place is tried first.
fn params(memory: &dyn Memory, vm: &Vm) -> Option<JitParams> {
    let JitParams::At(offset) = vm.layout.jit.param else {
        return Some(JitParams::Unset);
    };
    let at = vm.jit_state().wrapping_add(offset);
    let bytes = memory.read_vec(at, 4 * PARAMS, 4 * PARAMS).ok()?;
    let param = |index: u64| Block(&bytes).u32(4 * index);
    if (0..PARAMS).all(|index| param(index) == 0) {
        return Some(JitParams::Unset);
    }
    let plausible = (1..=MAXTRACE_MAX).contains(&param(MAXTRACE))
        && param(HOTLOOP) <= HOTLOOP_MAX
        && (1..=MAXMCODE_MAX).contains(&param(MAXMCODE));
    plausible.then_some(JitParams::At(offset))
}

/// Trace numbers are 16 bits wide.
const MAXTRACE_MAX: u32 = 65_535;

/// Far above any setting in use; counters are 16 bits wide.
const HOTLOOP_MAX: u32 = 100_000;

/// In KiB: machine code must lie within 2 GiB of the interpreter.
const MAXMCODE_MAX: u32 = 2 << 20;
