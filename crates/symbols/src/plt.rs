//! The stubs through which a module calls functions of other modules.
//!
//! A stub has no symbol. On x86-64 it jumps through a slot of the global offset table, and the
//! relocation of that slot carries the function's name; the jump is read from the stub's
//! code, so the order of stubs, which differs between linkers, does not matter.

use object::elf;
use object::read::elf::{Rela as _, SectionHeader as _};
use rustc_hash::FxHashMap;

use crate::elf::{Elf, LE, Rela, Section};

/// What a stub calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// A symbol of `.dynsym`, by index.
    Symbol(u32),
    /// The function at this address selects the implementation (`R_X86_64_IRELATIVE`).
    SelectedBy(u64),
    /// The shared first stub, which enters the dynamic linker.
    Resolver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stub {
    pub start: u64,
    pub end: u64,
    pub callee: Callee,
}

/// Sections that hold stubs: lazy, with branch tracking, for functions whose address is taken, and
/// of static programs.
const PLT_SECTIONS: [&str; 5] = [".plt", ".plt.sec", ".plt.bnd", ".plt.got", ".iplt"];

/// `jmp *disp32(%rip)`.
const JUMP_THROUGH_SLOT: [u8; 2] = [0xff, 0x25];
const JUMP_THROUGH_SLOT_BYTES: usize = 6;
/// `endbr64; push $imm32`: how a lazy stub starts when branch tracking is on.
const ENDBR_PUSH: [u8; 5] = [0xf3, 0x0f, 0x1e, 0xfa, 0x68];

/// Every stub of the file that can be named, ascending. Empty for machines other than x86-64.
pub(crate) fn stubs(elf: &Elf<'_>) -> Vec<Stub> {
    if elf.machine != elf::EM_X86_64 {
        return Vec::new();
    }
    let sections: Vec<_> = PLT_SECTIONS
        .iter()
        .filter_map(|name| elf.section_bytes(name))
        .collect();
    if sections.is_empty() {
        return Vec::new();
    }
    let slots = Slots::read(elf);
    let mut stubs = Vec::new();
    for (section, bytes) in sections {
        section_stubs(section, bytes, &slots, &mut stubs);
    }
    stubs.sort_unstable_by_key(|stub| stub.start);
    stubs
}

/// The stub that covers `address`.
pub(crate) fn find(stubs: &[Stub], address: u64) -> Option<&Stub> {
    let after = stubs.partition_point(|stub| stub.start <= address);
    stubs
        .get(after.checked_sub(1)?)
        .filter(|stub| address < stub.end)
}

fn section_stubs(section: &Section<'_>, bytes: &[u8], slots: &Slots, stubs: &mut Vec<Stub>) {
    let entry_bytes = match section.header.sh_entsize(LE) {
        8 => 8,
        _ => 16,
    };
    let mut address = section.address();
    for (index, code) in bytes.chunks(entry_bytes).enumerate() {
        let Some(end) = address.checked_add(code.len() as u64) else {
            return;
        };
        let callee = slots.callee(code, address).or_else(|| {
            let is_header = index == 0 && section.name == b".plt";
            is_header.then_some(Callee::Resolver)
        });
        if let Some(callee) = callee {
            stubs.push(Stub {
                start: address,
                end,
                callee,
            });
        }
        address = end;
    }
}

/// The relocated slots of the global offset table.
struct Slots {
    by_address: FxHashMap<u64, Callee>,
    /// `.rela.plt` in its order: lazy stubs push an index into it.
    lazy: Vec<Callee>,
}

impl Slots {
    fn read(elf: &Elf<'_>) -> Self {
        let mut slots = Self {
            by_address: FxHashMap::default(),
            lazy: Vec::new(),
        };
        for (name, lazy) in [
            (".rela.dyn", false),
            (".rela.iplt", false),
            (".rela.plt", true),
        ] {
            for rela in relocations(elf, name) {
                let callee = match rela.r_type(LE, false) {
                    elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                        Some(Callee::Symbol(rela.r_sym(LE, false)))
                    }
                    elf::R_X86_64_IRELATIVE => {
                        Some(Callee::SelectedBy(rela.r_addend(LE).cast_unsigned()))
                    }
                    _ => None,
                };
                if let Some(callee) = callee {
                    slots.by_address.insert(rela.r_offset(LE), callee);
                }
                if lazy {
                    slots.lazy.push(callee.unwrap_or(Callee::Resolver));
                }
            }
        }
        slots
    }

    /// What the stub with this code at `address` calls.
    fn callee(&self, code: &[u8], address: u64) -> Option<Callee> {
        if let Some(index) = code
            .strip_prefix(&ENDBR_PUSH)
            .and_then(|rest| rest.first_chunk())
        {
            return self.lazy.get(u32::from_le_bytes(*index) as usize).copied();
        }
        // Bytes of another operand may look like the jump: only a relocated slot counts.
        code.windows(JUMP_THROUGH_SLOT_BYTES)
            .enumerate()
            .find_map(|(at, window)| {
                let displacement: &[u8; 4] =
                    window.strip_prefix(&JUMP_THROUGH_SLOT)?.first_chunk()?;
                let next = address.wrapping_add((at + JUMP_THROUGH_SLOT_BYTES) as u64);
                let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement)));
                self.by_address.get(&slot).copied()
            })
    }
}

fn relocations<'a>(elf: &Elf<'a>, name: &str) -> &'a [Rela] {
    elf.section(name)
        .filter(|section| section.header.sh_type(LE) == elf::SHT_RELA)
        .and_then(|section| section.header.data_as_array(LE, elf.data).ok())
        .unwrap_or_default()
}
