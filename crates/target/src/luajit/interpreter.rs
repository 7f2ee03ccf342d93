//! Where the interpreter's machine code lies in an ELF file, stripped or not.

use std::ops::Range;

use gimli::{CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindSection, X86_64};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection};
use thiserror::Error;

/// Why no interpreter was found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InterpreterError {
    /// Not a 64-bit little-endian ELF file.
    #[error("not a 64-bit little-endian ELF file: {0}")]
    NotElf(String),
    /// It has no unwinding table.
    #[error("the file has no .eh_frame")]
    NoUnwindTable,
    /// No function has the interpreter's stack frame.
    #[error("no function of the file has the stack frame of LuaJIT's interpreter")]
    NotFound,
    /// Several functions have it.
    #[error("{0} functions of the file have the stack frame of LuaJIT's interpreter")]
    Ambiguous(usize),
}

/// Shortest code that can be the interpreter: about 100 bytecode handlers. All builds that were
/// looked at have 18 to 24 KiB.
const INTERPRETER_MIN: u64 = 4096;

/// Longest: handlers are found by 16-bit offsets (`lj_bc_ofs`).
const INTERPRETER_MAX: u64 = 1 << 16;

/// Addresses (as in the file) of the interpreter's machine code: bytecode handlers, fast functions
/// and the VM's subroutines.
///
/// It is the one function whose frame is, from its first instruction on, 80 bytes below the caller's
/// with rbp, rbx, r15 and r14 saved at -16, -24, -32 and -40: no compiler begins a function so,
/// because the frame is not yet built there (vm_x64.dasc, `.LASFDE0` in the generated lj_vm.S).
pub fn interpreter_range(elf: &[u8]) -> Result<Range<u64>, InterpreterError> {
    let file = ElfFile64::<object::LittleEndian>::parse(elf)
        .map_err(|error| InterpreterError::NotElf(error.to_string()))?;
    let (address, bytes) = unwind_table(&file).ok_or(InterpreterError::NoUnwindTable)?;
    let frames = EhFrame::new(bytes, LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(address);
    let mut found = interpreters(&frames, &bases);
    found.sort_by_key(|range| range.start);
    found.dedup();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(InterpreterError::NotFound),
        several => Err(InterpreterError::Ambiguous(several.len())),
    }
}

/// Address and bytes of .eh_frame, by its section, or where the section headers are gone, by the
/// segment that its look-up table points into.
fn unwind_table<'a>(file: &ElfFile64<'a, object::LittleEndian>) -> Option<(u64, &'a [u8])> {
    if let Some(section) = file.section_by_name(".eh_frame") {
        return section.data().ok().map(|bytes| (section.address(), bytes));
    }
    let (endian, data) = (file.endian(), file.data());
    let segments = file.elf_program_headers();
    let lookup = segments
        .iter()
        .find(|segment| segment.p_type(endian) == object::elf::PT_GNU_EH_FRAME)?;
    let lookup_address = lookup.p_vaddr(endian);
    let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(lookup_address);
    let header = gimli::EhFrameHdr::new(lookup.data(endian, data).ok()?, LittleEndian);
    let gimli::Pointer::Direct(address) = header.parse(&bases, 8).ok()?.eh_frame_ptr() else {
        return None;
    };
    segments.iter().find_map(|segment| {
        let offset = address.checked_sub(segment.p_vaddr(endian))?;
        let bytes = segment
            .data(endian, data)
            .ok()?
            .get(usize::try_from(offset).ok()?..)?;
        (segment.p_type(endian) == object::elf::PT_LOAD).then_some((address, bytes))
    })
}

type Frames<'a> = EhFrame<gimli::EndianSlice<'a, LittleEndian>>;

fn interpreters(frames: &Frames<'_>, bases: &gimli::BaseAddresses) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut context = gimli::UnwindContext::new();
    let mut entries = frames.entries(bases);
    // A malformed entry ends the table; what was found before it still counts.
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(Frames::cie_from_offset) else {
            continue;
        };
        if !(INTERPRETER_MIN..=INTERPRETER_MAX).contains(&fde.len()) {
            continue;
        }
        let Some(end) = fde.initial_address().checked_add(fde.len()) else {
            continue;
        };
        let Ok(mut rows) = fde.rows(frames, bases, &mut context) else {
            continue;
        };
        if let Ok(Some(row)) = rows.next_row()
            && row.start_address() == fde.initial_address()
            && is_interpreter_frame(row)
        {
            found.push(fde.initial_address()..end);
        }
    }
    found
}

fn is_interpreter_frame(row: &gimli::UnwindTableRow<usize>) -> bool {
    let saved = |register: Register| match row.register(register) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => None,
    };
    matches!(row.cfa(), CfaRule::RegisterAndOffset { register, offset: 80 } if *register == X86_64::RSP)
        && saved(X86_64::RBP) == Some(-16)
        && saved(X86_64::RBX) == Some(-24)
        && saved(X86_64::R15) == Some(-32)
        && saved(X86_64::R14) == Some(-40)
}
