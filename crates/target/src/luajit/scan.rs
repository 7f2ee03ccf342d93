//! Finding the VMs of a process by the shape of their main thread in memory.

use super::layout::{GLREF, JitParams, LAYOUTS, Layout, MAINTHREF, THREAD_SIZES};
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
    /// A LuaJIT whose offsets this crate does not know.
    UnknownLayout {
        /// `sizeof(lua_State)` as seen.
        thread_size: u64,
    },
    /// Known offsets, but what lies there cannot be.
    Inconsistent {
        /// Which field, and what was wrong with it.
        what: &'static str,
    },
}

impl std::fmt::Display for VmReject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VmReject::NotGc64 => f.write_str(
                "this LuaJIT is built without GC64 (32-bit references); only GC64 VMs can be read",
            ),
            VmReject::UnknownLayout { thread_size } => write!(
                f,
                "this LuaJIT's structures are of no version that is known (a thread has {thread_size} bytes)"
            ),
            VmReject::Inconsistent { what } => write!(f, "looks like a LuaJIT VM, but {what}"),
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

/// `mainthref` in a `global_State` with 32-bit references.
const COMPACT_MAINTHREF: u64 = 140;

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
            if memory.read_u64(global.wrapping_add(MAINTHREF)) != Ok(thread) {
                return;
            }
            match recognise(memory, mappings, thread, global) {
                Ok(vm) => scan.vms.push(vm),
                Err(reject) => scan.rejected.push((thread, reject)),
            }
        }
        GlobalCandidate::Compact(global) => {
            let mainthref = memory.read_u32(global.wrapping_add(COMPACT_MAINTHREF));
            if mainthref.map(u64::from) == Ok(thread) {
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
    let mut reject = VmReject::UnknownLayout { thread_size };
    for layout in LAYOUTS
        .iter()
        .filter(|layout| layout.thread.size == thread_size)
    {
        let vm = Vm {
            global_state: global,
            main_thread: thread,
            layout: *layout,
            first_handler: 0,
        };
        match verify(memory, mappings, &vm) {
            // Rows of one size that differ in `cur_L` both come here; the last reason is kept.
            Err(what) => reject = VmReject::Inconsistent { what },
            Ok(Verified {
                first_handler,
                params: Params::Plausible,
            }) => {
                return Ok(Vm {
                    first_handler,
                    ..vm
                });
            }
            Ok(Verified {
                first_handler,
                params: Params::Unset,
            }) => {
                let mut vm = Vm {
                    first_handler,
                    ..vm
                };
                vm.layout.jit.param = JitParams::Unset;
                return Ok(vm);
            }
            Ok(Verified {
                params: Params::Implausible,
                ..
            }) => {
                reject = VmReject::Inconsistent {
                    what: "its JIT parameters make no sense",
                };
            }
        }
    }
    Err(reject)
}

struct Verified {
    first_handler: u64,
    params: Params,
}

/// The invariants of a running VM under one layout.
fn verify(memory: &dyn Memory, mappings: &[Mapping], vm: &Vm) -> Result<Verified, &'static str> {
    let global = &vm.layout.global;
    let current = memory
        .read_u64(vm.global_state.wrapping_add(global.cur_l))
        .map_err(|_| "its current thread cannot be read")?;
    let belongs = |thread: u64| {
        memory.read_u64(thread.wrapping_add(vm.layout.thread.glref)) == Ok(vm.global_state)
            && memory.read_u8(thread.wrapping_add(GCT)) == Ok(gct::THREAD)
    };
    if !belongs(current) {
        return Err("its current thread is not one of its threads");
    }
    let thread = memory
        .read_vec(vm.main_thread, vm.layout.thread.size, *THREAD_SIZES.end())
        .map_err(|_| "its main thread cannot be read")?;
    let thread = Block(&thread);
    let stack = thread.u64(vm.layout.thread.stack);
    let stack_end = stack.saturating_add(8 * u64::from(thread.u32(vm.layout.thread.stacksize)));
    if !(stack..stack_end).contains(&thread.u64(vm.layout.thread.maxstack)) {
        return Err("the bounds of its main stack make no sense");
    }
    let first_handler = verify_dispatch(memory, mappings, vm)?;
    Ok(Verified {
        first_handler,
        params: params(memory, vm)?,
    })
}

/// Handlers are found by 16-bit offsets from the start of the interpreter (`lj_bc_ofs`), so all lie
/// within 64 KiB. Only the static copy is looked at: hooks change the rest.
fn verify_dispatch(
    memory: &dyn Memory,
    mappings: &[Mapping],
    vm: &Vm,
) -> Result<u64, &'static str> {
    const BROKEN: &str = "its dispatch table holds no addresses of one interpreter";
    let table = vm
        .dispatch()
        .wrapping_add(8 * vm.layout.dynamic_dispatch_len());
    let len = 8 * u64::from(vm.layout.opcodes.funcf);
    let table = memory.read_vec(table, len, len).map_err(|_| BROKEN)?;
    let table = Block(&table);
    let handlers = || (0..len).step_by(8).map(|offset| table.u64(offset));
    let (low, high) = (handlers().min().unwrap_or(0), handlers().max().unwrap_or(0));
    let code = find_mapping(mappings, low).filter(|mapping| mapping.permissions.execute);
    if code.is_none_or(|code| !code.contains(high)) || high - low > u64::from(u16::MAX) {
        return Err(BROKEN);
    }
    Ok(table.u64(0))
}

enum Params {
    Plausible,
    Implausible,
    Unset,
}

/// Indexes into `jit_State.param` (`JIT_PARAMDEF`, lj_jit.h).
const MAXTRACE: u64 = 0;
const HOTLOOP: u64 = 6;
const MAXMCODE: u64 = 14;
const PARAMS: u64 = 15;

/// Rows that differ only in where the array lies are four bytes apart. Read too late, `maxmcode` is
/// the padding behind the array, which is 0: so the row with the later place is tried first.
fn params(memory: &dyn Memory, vm: &Vm) -> Result<Params, &'static str> {
    let JitParams::At(offset) = vm.layout.jit.param else {
        return Ok(Params::Unset);
    };
    let at = vm.jit_state().wrapping_add(offset);
    let bytes = memory
        .read_vec(at, 4 * PARAMS, 4 * PARAMS)
        .map_err(|_| "its JIT parameters cannot be read")?;
    let param = |index: u64| Block(&bytes).u32(4 * index);
    if (0..PARAMS).all(|index| param(index) == 0) {
        return Ok(Params::Unset);
    }
    let plausible = (1..=MAXTRACE_MAX).contains(&param(MAXTRACE))
        && param(HOTLOOP) <= HOTLOOP_MAX
        && (1..=MAXMCODE_MAX).contains(&param(MAXMCODE));
    Ok(if plausible {
        Params::Plausible
    } else {
        Params::Implausible
    })
}

/// Trace numbers are 16 bits wide.
const MAXTRACE_MAX: u32 = 65_535;

/// Far above any setting in use; counters are 16 bits wide.
const HOTLOOP_MAX: u32 = 100_000;

/// In KiB: machine code must lie within 2 GiB of the interpreter.
const MAXMCODE_MAX: u32 = 2 << 20;
