//! Any bytes as an ELF file or, after a first byte that is odd, as the .eh_frame of one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_target::{identify_library, interpreter_range};

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else {
        return;
    };
    let wrapped;
    let elf = if how % 2 == 0 {
        rest
    } else {
        wrapped = wrap(rest);
        &wrapped
    };
    if let Ok(range) = interpreter_range(elf) {
        assert!(range.start < range.end && range.end - range.start <= 1 << 16);
    }
    identify_library(elf);
});

/// A file with the two sections .eh_frame, at address 0x1000, and .shstrtab (elf(5)).
fn wrap(eh_frame: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.shstrtab\0";
    const HEADER: usize = 64;
    let names_at = HEADER + eh_frame.len();
    let sections_at = (names_at + NAMES.len()).next_multiple_of(8);
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend([0; 16]);
    elf.extend((sections_at as u64).to_le_bytes());
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    elf.extend(eh_frame);
    elf.extend(NAMES);
    elf.resize(sections_at + 64, 0);
    let mut section = |name: u32, kind: u32, address: u64, offset: usize, len: usize| {
        elf.extend(name.to_le_bytes());
        elf.extend(kind.to_le_bytes());
        for word in [2, address, offset as u64, len as u64, 0, 1, 0] {
            elf.extend(word.to_le_bytes());
        }
    };
    section(1, 1, 0x1000, HEADER, eh_frame.len());
    section(11, 3, 0, names_at, NAMES.len());
    // sh_link and sh_info share a word above, so each header has 64 bytes.
    assert_eq!(elf.len(), sections_at + 3 * 64);
    elf
}
