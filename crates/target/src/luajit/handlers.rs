//! Names for the interpreter's machine code, from the VM's own dispatch table: stripped libraries
//! have no others.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use thiserror::Error;

use super::layout::ASM_FAST_FUNCTIONS;
use super::scan::Vm;
use crate::memory::{Block, Memory, MemoryError};

/// Why handlers have no names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandlersError {
    /// The table or the code could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The range is none that an interpreter can have.
    #[error("{0:#x?} is not the range of an interpreter")]
    BadRange(Range<u64>),
    /// The dispatch table points elsewhere: it belongs to another interpreter.
    #[error("the handler of {name} at {address:#x} lies outside of the interpreter")]
    Outside {
        /// The handler.
        name: String,
        /// Where it lies.
        address: u64,
    },
}

/// What a piece of the interpreter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerKind {
    /// Runs one kind of bytecode.
    Bytecode,
    /// A library function that is written in assembler.
    FastFunction,
    /// Code that several handlers share, entry and exit of the VM, calls, hooks: which of these it
    /// is no table says.
    Subroutine,
}

/// A named piece of the interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// Its first address.
    pub address: u64,
    /// The first address after it.
    pub end: u64,
    /// What it does.
    pub kind: HandlerKind,
    /// As LuaJIT's own symbol tables name it, `lj_BC_TGETS`, `lj_ff_string_sub`; `lj_vm_*` for
    /// subroutines.
    pub name: String,
}

/// Bytecodes in the order of `BCDEF` (lj_bc.h), without the function headers.
const BYTECODES: &str = "\
    ISLT ISGE ISLE ISGT ISEQV ISNEV ISEQS ISNES ISEQN ISNEN ISEQP ISNEP ISTC ISFC IST ISF ISTYPE \
    ISNUM MOV NOT UNM LEN ADDVN SUBVN MULVN DIVVN MODVN ADDNV SUBNV MULNV DIVNV MODNV ADDVV SUBVV \
    MULVV DIVVV MODVV POW CAT KSTR KCDATA KSHORT KNUM KPRI KNIL UGET USETV USETS USETN USETP UCLO \
    FNEW TNEW TDUP GGET GSET TGETV TGETS TGETB TGETR TSETV TSETS TSETB TSETM TSETR CALLM CALL \
    CALLMT CALLT ITERC ITERN VARG ISNEXT RETM RET RET0 RET1 FORI JFORI FORL IFORL JFORL ITERL \
    IITERL JITERL LOOP ILOOP JLOOP JMP";

/// Bytecodes that versions from 2026 have between those and the function headers.
const BIT_OPERATORS: &str = "BNOT BAND BOR BXOR BSHL BSHR BSAR";

/// The last bytecodes.
pub(super) const FUNCTION_HEADERS: &str = "FUNCF IFUNCF JFUNCF FUNCV IFUNCV JFUNCV FUNCC FUNCCW";

/// Fast functions written in assembler, in the order of the library sources (`LJLIB_ASM` in
/// lib_base.c, lib_math.c, lib_bit.c, lib_string.c), which is that of the dispatch table.
const FAST_FUNCTIONS: &str = "\
    assert type next pairs ipairs_aux ipairs getmetatable setmetatable rawget tonumber tostring \
    pcall xpcall coroutine_yield coroutine_resume coroutine_wrap_aux math_abs math_floor math_ceil \
    math_sqrt math_log10 math_exp math_sin math_cos math_tan math_asin math_acos math_atan \
    math_sinh math_cosh math_tanh math_frexp math_modf math_log math_atan2 math_pow math_fmod \
    math_ldexp math_min math_max bit_tobit bit_bnot bit_bswap bit_lshift bit_rshift bit_arshift \
    bit_rol bit_ror bit_band bit_bor bit_bxor string_byte string_char string_sub string_reverse \
    string_lower string_upper";

/// Names for the code in `interpreter`, the range of
/// [`interpreter_range`](super::interpreter_range) moved to where the target has mapped it. Sorted
/// by address and without gaps from the first handler to the end of the range.
///
/// Fast functions are missing (and are subroutines) while a call hook is set, because it replaces
/// their entries in the table.
pub fn handlers(
    memory: &dyn Memory,
    vm: &Vm,
    interpreter: Range<u64>,
) -> Result<Vec<Handler>, HandlersError> {
    let len = interpreter.end.wrapping_sub(interpreter.start);
    if interpreter.is_empty() || len > u64::from(u16::MAX) + 1 {
        return Err(HandlersError::BadRange(interpreter));
    }
    let code = memory.read_vec(interpreter.start, len, len)?;
    let code = Code {
        start: interpreter.start,
        bytes: &code,
    };
    let entries = entries(memory, vm, &interpreter)?;
    Ok(pieces(&code, entries))
}

struct Entry {
    address: u64,
    kind: HandlerKind,
    name: String,
}

/// One entry an address, sorted. The JIT's counting variant of a loop or function header is replaced
/// by the plain one while the JIT is off, and then both have the address of the plain one (`IFORL`),
/// which is the later in the table.
fn entries(
    memory: &dyn Memory,
    vm: &Vm,
    interpreter: &Range<u64>,
) -> Result<Vec<Entry>, HandlersError> {
    let opcodes = vm.layout.opcodes;
    let dynamic = vm.layout.dynamic_dispatch_len();
    let len = 8 * (dynamic + u64::from(opcodes.funcf));
    let table = memory.read_vec(vm.dispatch(), len, len)?;
    let entry = |index: u64| Block(&table).u64(8 * index);
    let bytecodes = bytecode_names(opcodes.funcf);
    let plain = bytecodes.iter().enumerate().map(|(op, name)| Entry {
        address: entry(dynamic + op as u64),
        kind: HandlerKind::Bytecode,
        name: format!("lj_BC_{name}"),
    });
    let mut entries: Vec<Entry> = plain.collect();
    if !has_call_hook(vm, entry) {
        let first = u64::from(opcodes.funcf);
        let headers = FUNCTION_HEADERS
            .split(' ')
            .map(|name| format!("lj_BC_{name}"));
        let headers = headers.map(|name| (HandlerKind::Bytecode, name));
        let functions = FAST_FUNCTIONS
            .split(' ')
            .map(|name| format!("lj_ff_{name}"));
        let functions = functions.map(|name| (HandlerKind::FastFunction, name));
        entries.extend(
            (first..)
                .zip(headers.chain(functions))
                .map(|(index, (kind, name))| Entry {
                    address: entry(index),
                    kind,
                    name,
                }),
        );
    }
    if let Some(entry) = entries
        .iter()
        .find(|entry| !interpreter.contains(&entry.address))
    {
        return Err(HandlersError::Outside {
            name: entry.name.clone(),
            address: entry.address,
        });
    }
    entries.reverse();
    entries.sort_by_key(|entry| entry.address);
    entries.dedup_by_key(|entry| entry.address);
    Ok(entries)
}

pub(super) fn bytecode_names(funcf: u8) -> Vec<&'static str> {
    let mut names: Vec<&str> = BYTECODES.split(' ').collect();
    if usize::from(funcf) > names.len() {
        names.extend(BIT_OPERATORS.split(' '));
    }
    names
}

/// A call hook puts one address into every entry from the function headers on
/// (`lj_dispatch_update`, lj_dispatch.c).
fn has_call_hook(vm: &Vm, entry: impl Fn(u64) -> u64) -> bool {
    let first = u64::from(vm.layout.opcodes.funcf);
    let end = u64::from(vm.layout.opcodes.count) + ASM_FAST_FUNCTIONS;
    (first..end).all(|index| entry(index) == entry(first))
}

/// The interpreter's machine code.
struct Code<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl Code<'_> {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn slice(&self, range: &Range<u64>) -> &[u8] {
        let offset = |address: u64| {
            address
                .checked_sub(self.start)
                .map(|offset| offset as usize)
        };
        match (offset(range.start), offset(range.end)) {
            (Some(start), Some(end)) => self.bytes.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// `lj_vm_returnp`, the first subroutine, stands behind the last bytecode handler and begins
    /// with `test ebx, FRAME_P` (vm_x64.dasc).
    fn first_subroutine(&self, last_bytecode: u64) -> Option<u64> {
        const TEST_FRAME_P: &[u8] = &[0xf7, 0xc3, 4, 0, 0, 0];
        /// The last handler (`FUNCCW`) has 114 to 130 bytes.
        const LAST_HANDLER_MAX: u64 = 512;
        let end = self.end().min(last_bytecode + LAST_HANDLER_MAX);
        let rest = self.slice(&(last_bytecode..end));
        memchr::memmem::find(rest, TEST_FRAME_P).map(|offset| last_bytecode + offset as u64)
    }

    /// Where the code of `range` jumps to without a computed address.
    fn jumps(&self, range: &Range<u64>) -> Vec<u64> {
        let mut decoder =
            Decoder::with_ip(64, self.slice(range), range.start, DecoderOptions::NONE);
        let mut targets = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let is_near = instruction.op0_kind() == OpKind::NearBranch64;
            if is_near && instruction.mnemonic() != Mnemonic::Call {
                targets.push(instruction.near_branch_target());
            }
        }
        targets
    }
}

/// Cuts the code into pieces, one for each entry and one for each stretch that belongs to none.
fn pieces(code: &Code<'_>, entries: Vec<Entry>) -> Vec<Handler> {
    let mut pieces: Vec<Handler> = Vec::with_capacity(entries.len());
    let ends: Vec<u64> = entries.iter().skip(1).map(|entry| entry.address).collect();
    for (entry, end) in entries
        .into_iter()
        .zip(ends.into_iter().chain([code.end()]))
    {
        let Entry {
            address,
            kind,
            name,
        } = entry;
        pieces.push(Handler {
            address,
            end,
            kind,
            name,
        });
    }
    let last_bytecode = pieces
        .iter()
        .rposition(|piece| piece.kind == HandlerKind::Bytecode);
    if let Some(index) = last_bytecode
        && let Some(piece) = pieces.get(index)
        && let Some(subroutines) = code.first_subroutine(piece.address)
    {
        cut(&mut pieces, index, subroutines);
    }
    cut_shared_code(code, &mut pieces);
    pieces
}

/// Behind some fast functions stands code that others jump into (their common ways to return). It
/// begins where the first jump from another piece arrives; jumps between bytecode handlers are left
/// alone, because LuaJIT's own symbols do not cut those either.
fn cut_shared_code(code: &Code<'_>, pieces: &mut Vec<Handler>) {
    let mut jumps: Vec<(u64, usize)> = (0..)
        .zip(pieces.iter())
        .flat_map(|(from, piece)| {
            let targets = code.jumps(&(piece.address..piece.end));
            targets.into_iter().map(move |target| (target, from))
        })
        .collect();
    jumps.sort_unstable();
    for index in (0..pieces.len()).rev() {
        let Some(piece) = pieces.get(index) else {
            continue;
        };
        if piece.kind != HandlerKind::FastFunction {
            continue;
        }
        let behind = jumps.partition_point(|(target, _)| *target <= piece.address);
        let inside = jumps
            .iter()
            .skip(behind)
            .take_while(|(target, _)| *target < piece.end);
        if let Some((first, _)) = inside.into_iter().find(|(_, from)| *from != index) {
            cut(pieces, index, *first);
        }
    }
}

/// Ends a piece at `at` and puts a subroutine behind it.
fn cut(pieces: &mut Vec<Handler>, index: usize, at: u64) {
    let Some(piece) = pieces.get_mut(index) else {
        return;
    };
    if piece.address < at && at < piece.end {
        let end = std::mem::replace(&mut piece.end, at);
        let name = "lj_vm_*".to_owned();
        let rest = Handler {
            address: at,
            end,
            kind: HandlerKind::Subroutine,
            name,
        };
        pieces.insert(index + 1, rest);
    }
}
