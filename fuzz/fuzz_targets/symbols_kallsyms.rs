//! Any bytes as /proc/kallsyms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_symbols::Kallsyms;

fuzz_target!(|data: &[u8]| {
    let table = Kallsyms::parse(data);
    for address in (0..0x200)
        .step_by(7)
        .chain([u64::MAX, 0xffff_ffff_8100_0000])
    {
        let named = table.lookup(address).reason().is_none();
        assert_eq!(named, table.module(address).is_some());
    }
});
