//! Where the fields of a LuaJIT VM lie.
//!
//! Offsets are in bytes, for x86-64 with GC64. They were taken with `offsetof` from the headers of
//! each version and seen to hold in running VMs; a VM is matched to a row by what varies, and a VM
//! that fits no row is refused, never guessed at.

/// `lua_State`, a thread (coroutine). The same in all versions but for its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLayout {
    /// `sizeof(lua_State)`, the distance from the main thread to the `global_State`: 112 in
    /// OpenResty's fork (which adds two `exdata` pointers), 96 in mainline.
    pub size: u64,
    /// `glref`: the `global_State`.
    pub glref: u64,
    /// `base`: base of the function that ran when the VM last stored it.
    pub base: u64,
    /// `top`: first free slot.
    pub top: u64,
    /// `maxstack`: last free slot.
    pub maxstack: u64,
    /// `stack`: first slot.
    pub stack: u64,
    /// `env`: the table of globals.
    pub env: u64,
    /// `cframe`: innermost C frame of the VM; the low two bits are flags.
    pub cframe: u64,
    /// `stacksize`: slots, u32.
    pub stacksize: u64,
}

/// `global_State`, one per VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalLayout {
    /// `gc.root`: first of all collectable objects.
    pub gc_root: u64,
    /// `hookmask`, u8.
    pub hookmask: u64,
    /// `dispatchmode`, u8.
    pub dispatchmode: u64,
    /// `vmstate`, i32: the number of the running trace, or the complement of a `LJ_VMST_*`.
    pub vmstate: u64,
    /// `mainthref`: the main thread.
    pub mainthref: u64,
    /// `cur_L`: the thread that runs, or that ran last.
    pub cur_l: u64,
    /// `jit_base`: `L->base` while machine code runs, else 0.
    pub jit_base: u64,
    /// `GG_State.J` counted from the `global_State`.
    pub jit_state: u64,
    /// `GG_State.hotcount` counted from the `global_State`: 64 counters, u16.
    pub hotcount: u64,
    /// `GG_State.dispatch` counted from the `global_State`: what r14 points to in the interpreter.
    pub dispatch: u64,
}

/// Where `jit_State.param` lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JitParams {
    /// Counted from the `jit_State`; 15 numbers, i32, in the order of `JIT_PARAMDEF` (lj_jit.h).
    At(u64),
    /// The parameters are all unset (the host has not opened the `jit` library), so the versions
    /// that differ only in their place cannot be told apart; the name is that of the newer one.
    Unset,
}

/// `jit_State`, counted from its own start. The same in all versions but for `param`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitLayout {
    /// `flags`, u32.
    pub flags: u64,
    /// `state`, u32: a `TraceState`.
    pub state: u64,
    /// `trace`: array of pointers to `GCtrace`.
    pub trace: u64,
    /// `sizetrace`, u32: length of that array.
    pub sizetrace: u64,
    /// `param`.
    pub param: JitParams,
    /// `penalty`: 64 of {pc u64, val u16, reason u16, padding}, 16 bytes each.
    pub penalty: u64,
    /// `penaltyslot`, u32.
    pub penaltyslot: u64,
    /// `mcarea`: newest machine-code area; each begins with {next u64, size u64}.
    pub mcarea: u64,
    /// `szmcarea`: size of the newest area.
    pub szmcarea: u64,
    /// `szallmcarea`: size of all areas together.
    pub szallmcarea: u64,
}

/// `GCproto`, a function prototype. The bytecode follows it: `bytecode = proto + size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrototypeLayout {
    /// `sizeof(GCproto)`.
    pub size: u64,
    /// `sizebc`, u32: instructions, the function header included.
    pub sizebc: u64,
    /// `sizept`, u32: bytes of the prototype with all that is laid out behind it.
    pub sizept: u64,
    /// `flags`, u8: `PROTO_*` (lj_obj.h).
    pub flags: u64,
    /// `trace`, u16: first root trace of the function.
    pub trace: u64,
    /// `chunkname`: a string.
    pub chunkname: u64,
    /// `firstline`, i32.
    pub firstline: u64,
    /// `numline`, i32.
    pub numline: u64,
    /// `lineinfo`: one u8, u16 or u32 an instruction after the header, by `numline`.
    pub lineinfo: u64,
}

/// `GCfunc`, a closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionLayout {
    /// `ffid`, u8: 0 Lua, 1 C, above: a fast function.
    pub ffid: u64,
    /// `pc`: of a Lua function its bytecode.
    pub pc: u64,
    /// `f`: of a C function its address.
    pub f: u64,
}

/// `GCstr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringLayout {
    /// `len`, u32.
    pub len: u64,
    /// The bytes, behind the header.
    pub data: u64,
}

/// `GCtrace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLayout {
    /// `sizeof(GCtrace)` without the debugger's field.
    pub size: u64,
    /// `nsnap`, u16: snapshots.
    pub nsnap: u64,
    /// `nins`, u32: next IR instruction, biased by 0x8000.
    pub nins: u64,
    /// `ir`: the IR, 8 bytes an instruction, so that instruction `n` lies at `ir + 8 * n`.
    pub ir: u64,
    /// `nk`, u32: lowest IR constant, biased by 0x8000; constants lie below that bias.
    pub nk: u64,
    /// `nsnapmap`, u32: elements of the snapshot map.
    pub nsnapmap: u64,
    /// `snap`: array of `SnapShot`.
    pub snap: u64,
    /// `snapmap`: array of u32 that the snapshots point into.
    pub snapmap: u64,
    /// `startpt`: the prototype that the trace starts in.
    pub startpt: u64,
    /// `startpc`: the instruction that it starts at.
    pub startpc: u64,
    /// `startins`, u32: that instruction before it was patched.
    pub startins: u64,
    /// `szmcode`, u32: bytes of machine code.
    pub szmcode: u64,
    /// `mcode`: start of the machine code.
    pub mcode: u64,
    /// `nchild`, u16: side traces of a root trace.
    pub nchild: u64,
    /// `spadjust`, u16: bytes that the trace's code moves rsp down by.
    pub spadjust: u64,
    /// `traceno`, u16.
    pub traceno: u64,
    /// `link`, u16: the trace it continues in.
    pub link: u64,
    /// `root`, u16: 0 for a root trace.
    pub root: u64,
    /// `nextroot`, u16.
    pub nextroot: u64,
    /// `nextside`, u16.
    pub nextside: u64,
    /// `topslot`, u8: the highest stack slot that the trace has checked to be there.
    pub topslot: u64,
    /// `linktype`, u8.
    pub linktype: u64,
}

/// Numbers of bytecodes (lj_bc.h). Up to `BC_JMP` (88) they are the same in all versions; 2026 put
/// seven bit operators between it and `BC_FUNCF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opcodes {
    /// `BC_FUNCF`, the first of eight function headers: 89, or 96 with the bit operators.
    pub funcf: u8,
    /// `BC__MAX`.
    pub count: u8,
}

/// One row of the table: all offsets of one set of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The versions it holds for, for people.
    pub name: &'static str,
    /// `lua_State`.
    pub thread: ThreadLayout,
    /// `global_State` and the `GG_State` around it.
    pub global: GlobalLayout,
    /// `jit_State`.
    pub jit: JitLayout,
    /// `GCproto`.
    pub prototype: PrototypeLayout,
    /// `GCfunc`.
    pub function: FunctionLayout,
    /// `GCstr`.
    pub string: StringLayout,
    /// `GCtrace`.
    pub trace: TraceLayout,
    /// Bytecode numbers.
    pub opcodes: Opcodes,
}

/// What differs between the rows.
#[derive(Clone, Copy)]
struct Varying {
    name: &'static str,
    thread_size: u64,
    cur_l: u64,
    jit_state: u64,
    dispatch: u64,
    param: u64,
    funcf: u8,
    strings: StringTable,
}

/// Where `global_State` keeps its table of strings, which moved what stands around it.
#[derive(Clone, Copy)]
enum StringTable {
    /// As `g->str`, in the middle, since 2020.
    Inside,
    /// As `g->strhash` and its neighbours, at the start.
    First,
}

const fn row(varying: Varying) -> Layout {
    let (gc_root, hookmask, vmstate, mainthref, jit_shift, string_len) = match varying.strings {
        StringTable::Inside => (40, 145, 184, 192, 0, 20),
        StringTable::First => (56, 193, 128, 200, 8, 16),
    };
    Layout {
        name: varying.name,
        thread: ThreadLayout {
            size: varying.thread_size,
            glref: GLREF,
            base: 32,
            top: 40,
            maxstack: 48,
            stack: 56,
            env: 72,
            cframe: 80,
            stacksize: 88,
        },
        global: GlobalLayout {
            gc_root,
            hookmask,
            dispatchmode: hookmask + 1,
            vmstate,
            mainthref,
            cur_l: varying.cur_l,
            jit_base: varying.cur_l + 8,
            jit_state: varying.jit_state,
            hotcount: varying.dispatch - HOTCOUNTS * 2,
            dispatch: varying.dispatch,
        },
        jit: JitLayout {
            flags: 168,
            state: 236,
            trace: 384 + jit_shift,
            sizetrace: 396 + jit_shift,
            param: JitParams::At(varying.param),
            penalty: 1824 + jit_shift,
            penaltyslot: 2848 + jit_shift,
            mcarea: 3048 + jit_shift,
            szmcarea: 3072 + jit_shift,
            szallmcarea: 3080 + jit_shift,
        },
        prototype: PrototypeLayout {
            size: 104,
            sizebc: 12,
            sizept: 56,
            flags: 61,
            trace: 62,
            chunkname: 64,
            firstline: 72,
            numline: 76,
            lineinfo: 80,
        },
        function: FunctionLayout {
            ffid: 10,
            pc: 32,
            f: 40,
        },
        string: StringLayout {
            len: string_len,
            data: 24,
        },
        trace: TraceLayout {
            size: 120,
            nsnap: 10,
            nins: 12,
            ir: 32,
            nk: 40,
            nsnapmap: 44,
            snap: 48,
            snapmap: 56,
            startpt: 64,
            startpc: 72,
            startins: 80,
            szmcode: 84,
            mcode: 88,
            nchild: 100,
            spadjust: 102,
            traceno: 104,
            link: 106,
            root: 108,
            nextroot: 110,
            nextside: 112,
            topslot: 115,
            linktype: 116,
        },
        opcodes: Opcodes {
            funcf: varying.funcf,
            count: varying.funcf + FUNCTION_HEADERS,
        },
    }
}

/// `HOTCOUNT_SIZE` (lj_dispatch.h); the counters lie directly before the dispatch table.
const HOTCOUNTS: u64 = 64;

/// `BC_FUNCF` to `BC_FUNCCW`, the last bytecodes.
const FUNCTION_HEADERS: u8 = 8;

/// `GG_NUM_ASMFF` (lj_dispatch.h): fast functions written in assembler, in every version here.
pub(crate) const ASM_FAST_FUNCTIONS: u64 = 57;

const OPENRESTY: Varying = Varying {
    name: "OpenResty 2020 to 2023",
    thread_size: 112,
    cur_l: 368,
    jit_state: 736,
    dispatch: 4008,
    param: 1632,
    funcf: 89,
    strings: StringTable::Inside,
};

const MAINLINE: Varying = Varying {
    name: "LuaJIT 2.1 of 2022",
    thread_size: 96,
    jit_state: 728,
    dispatch: 3968,
    ..OPENRESTY
};

const OLD_MAINLINE: Varying = Varying {
    name: "LuaJIT 2.1 before 2020",
    cur_l: 344,
    jit_state: 672,
    dispatch: 3920,
    param: 1640,
    strings: StringTable::First,
    ..MAINLINE
};

/// Every layout that is known. Of rows that differ only in `param`, the one with the later place
/// stands first (see `params` in scan.rs). Looked at: OpenResty's fork of 2022-04, 2023-01 and
/// 2024-03 and that in `luajit-src` 210.1.0, 210.2.0, 210.3.0, 210.4.0 and 210.4.8; mainline of
/// 2022-03 and that in `luajit-src` 210.0.0, 210.5.0, 210.5.12, 210.6.0, 210.6.6 and 210.7.4.
pub(crate) static LAYOUTS: [Layout; 9] = [
    row(Varying {
        name: "OpenResty 2024-03",
        param: 1636,
        ..OPENRESTY
    }),
    row(OPENRESTY),
    row(Varying {
        name: "LuaJIT 2.1 of 2026-08",
        cur_l: 376,
        jit_state: 744,
        dispatch: 4000,
        param: 1636,
        funcf: 96,
        ..MAINLINE
    }),
    row(Varying {
        name: "LuaJIT 2.1 of 2026-01",
        cur_l: 376,
        jit_state: 744,
        dispatch: 4000,
        param: 1636,
        ..MAINLINE
    }),
    row(Varying {
        name: "LuaJIT 2.1 of 2025",
        jit_state: 736,
        dispatch: 3976,
        param: 1636,
        ..MAINLINE
    }),
    row(Varying {
        name: "LuaJIT 2.1 of 2023-11",
        param: 1636,
        ..MAINLINE
    }),
    row(MAINLINE),
    row(Varying {
        name: "OpenResty before 2020",
        thread_size: 104,
        jit_state: 680,
        dispatch: 3928,
        ..OLD_MAINLINE
    }),
    row(OLD_MAINLINE),
];

/// Smallest and largest distance from a main thread to its `global_State` that the scan takes for
/// a VM: mainline's 96 with room for a fork that removes or adds a few fields.
pub(crate) const THREAD_SIZES: std::ops::RangeInclusive<u64> = 88..=160;

/// `lua_State.glref`, the same in all rows.
pub(crate) const GLREF: u64 = 16;

impl Layout {
    /// Entries of the dispatch table before the static copy of the bytecodes below `BC_FUNCF`: every
    /// bytecode and assembler fast function (`GG_LEN_DDISP`, lj_dispatch.h).
    pub(crate) fn dynamic_dispatch_len(&self) -> u64 {
        u64::from(self.opcodes.count) + ASM_FAST_FUNCTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_looks_for_threads_of_every_row() {
        assert!(
            LAYOUTS
                .iter()
                .all(|layout| THREAD_SIZES.contains(&layout.thread.size))
        );
    }

    #[test]
    fn no_two_rows_are_the_same() {
        for (index, layout) in LAYOUTS.iter().enumerate() {
            for other in &LAYOUTS[index + 1..] {
                assert_ne!(
                    Layout {
                        name: "",
                        ..*layout
                    },
                    Layout { name: "", ..*other }
                );
            }
        }
    }
}
