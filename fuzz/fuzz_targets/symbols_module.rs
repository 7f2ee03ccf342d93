//! Any bytes as an ELF file, and as its own debug file. Seeds: small real programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_symbols::{ModuleSymbols, Options, SharedBytes};

fuzz_target!(|data: &[u8]| {
    let mut options = Options::default();
    options.max_unpacked_bytes = 16 << 20;
    let file = SharedBytes::from(data.to_vec());
    let Ok(mut module) = ModuleSymbols::parse(file.clone(), &options) else {
        return;
    };
    let look = |module: &ModuleSymbols| {
        let starts: Vec<u64> = module.function_extents().map(|e| e.0).take(16).collect();
        let segments: Vec<u64> = module
            .load_segments()
            .iter()
            .map(|s| s.addresses.start)
            .take(16)
            .collect();
        for address in starts
            .into_iter()
            .chain(segments)
            .chain([0, 0x1000, 0x1139, u64::MAX])
        {
            for near in [address, address.wrapping_add(5), address.wrapping_sub(1)] {
                let found = module.lookup(near);
                assert!(found.label("module", near).len() < 200_000);
            }
            module.svma_of_file_offset(address);
        }
        module.coverage(Some("package"));
    };
    look(&module);
    if module.add_debug_file(file).is_ok() {
        look(&module);
    }
});
