//! Any bytes as a jitdump file, in two pieces: the cut must not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_symbols::JitDump;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, text)) = data.split_first() else {
        return;
    };
    let (head, tail) = text.split_at(usize::from(cut).min(text.len()));
    let (mut whole, mut pieces) = (JitDump::new(), JitDump::new());
    let first = whole.push(text);
    let second = pieces.push(head).and_then(|()| pieces.push(tail));
    assert_eq!(first, second);
    assert_eq!(whole.len(), pieces.len());
    for address in (0..0x3000).step_by(509).chain([u64::MAX]) {
        for time in [None, Some(0), Some(25), Some(u64::MAX)] {
            assert_eq!(whole.lookup(address, time), pieces.lookup(address, time));
        }
    }
});
