//! Any bytes as DWARF: the input is cut into sections at the lengths that its first bytes state.
#![no_main]

mod symbols_elf;

use libfuzzer_sys::fuzz_target;
use throughline_symbols::{ModuleSymbols, Options};

const SECTIONS: [&str; 8] = [
    ".debug_abbrev",
    ".debug_info",
    ".debug_line",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_aranges",
    ".debug_str",
    ".debug_addr",
];

/// An unwinding entry for 4 KiB of .text, so that names of DWARF are used.
const EH_FRAME: [u8; 44] = [
    0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 0x10, 1, 0x03, 0x0c, 7, 8, 0x90, 1, 0,
    0, //
    0x10, 0, 0, 0, 0x1c, 0, 0, 0, 0, 0x10, 0x40, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
];

fuzz_target!(|data: &[u8]| {
    let Some((lengths, mut rest)) = data.split_first_chunk::<16>() else {
        return;
    };
    let mut sections: Vec<(&str, u64, &[u8])> = vec![(".eh_frame", 0x60_0000, &EH_FRAME)];
    for (name, length) in SECTIONS.iter().zip(lengths.chunks_exact(2)) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (section, after) = rest.split_at(length.min(rest.len()));
        sections.push((name, 0, section));
        rest = after;
    }
    let file = symbols_elf::with_sections(&sections);
    let module =
        ModuleSymbols::parse(file.into(), &Options::default()).expect("the file is well formed");
    for step in 0..32 {
        module.lookup(symbols_elf::TEXT + step * 13);
    }
});
