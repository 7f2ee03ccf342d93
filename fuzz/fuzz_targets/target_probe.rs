//! Any bytes as the memory of a Lua probe.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_target::parse_probe;

fuzz_target!(|data: &[u8]| {
    if let Ok(probe) = parse_probe(data) {
        assert!(probe.functions.len() * 256 <= data.len());
        assert!(
            probe
                .requests_function
                .is_none_or(|index| index < probe.functions.len())
        );
        if let Some(events) = probe.events {
            assert!(events.starts.len() * 320 <= data.len());
        }
    }
});
