//! Any bytes as a perf map, in two pieces: the cut must not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_symbols::PerfMap;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, text)) = data.split_first() else {
        return;
    };
    let (head, tail) = text.split_at(usize::from(cut).min(text.len()));
    let (mut whole, mut pieces) = (PerfMap::new(), PerfMap::new());
    whole.push(text);
    pieces.push(head);
    pieces.push(tail);
    assert_eq!(whole.counts(), pieces.counts());
    for address in (0..0x200).step_by(7).chain([u64::MAX]) {
        assert_eq!(whole.lookup(address), pieces.lookup(address));
    }
});
