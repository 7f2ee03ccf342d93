//! Any bytes as Go's pclntab, in a section of that name.
#![no_main]

mod symbols_elf;

use libfuzzer_sys::fuzz_target;
use throughline_symbols::{ModuleSymbols, Options};

fuzz_target!(|data: &[u8]| {
    let file = symbols_elf::with_sections(&[(".gopclntab", 0x50_0000, data)]);
    let module =
        ModuleSymbols::parse(file.into(), &Options::default()).expect("the file is well formed");
    for step in 0..64 {
        let address = symbols_elf::TEXT + step * 37;
        module.lookup(address);
    }
});
