//! A VM with a trace, a penalty slot and a chain of objects, in which any bytes are overwritten, looked at as a whole.
//!
//! The input is a list of patches: place (u16, in words of 4 bytes), length (u8), that many bytes; behind the first byte,
//! which says which version the VM is of.
#![no_main]

mod vm;

use libfuzzer_sys::fuzz_target;
use throughline_target::{
    FixtureMemory, JitWatch, Mapping, Permissions, census, find_vms, jit_parameters, jit_pulse,
    place_of,
};

use vm::{CODE, CODE_LEN, HEAP, HEAP_LEN, Heap, VERSIONS};

const STACK: u64 = 0x2000;
const PROTOTYPE: u64 = 0x3000;
const NAME: u64 = 0x3400;
const TRACES: u64 = 0x3800;
const TRACE: u64 = 0x3900;
const SNAPSHOTS: u64 = 0x3a00;
const MAP: u64 = 0x3a40;
const IR: u64 = 0x3b00;
const FUNCTION: u64 = 0x5000;

fn made_up(version: usize) -> Heap {
    let (thread, cur_l, jit, dispatch, param, funcf) = VERSIONS[version % VERSIONS.len()];
    let mut heap = Heap(vec![0; HEAP_LEN]);
    heap.tag(0, 6);
    heap.word(16, HEAP + thread);
    heap.word(48, HEAP + STACK + 0x100);
    heap.word(56, HEAP + STACK);
    heap.word(88, 0x100);
    heap.word(thread + 40, HEAP + FUNCTION);
    heap.word(thread + 192, HEAP);
    heap.word(thread + cur_l, HEAP);
    let jit = thread + jit;
    for number in 0..15 {
        heap.half(jit + param + 4 * number, 56);
    }
    for entry in 0..funcf + 65 + funcf {
        let place = if entry < funcf + 65 {
            entry
        } else {
            entry - (funcf + 65)
        };
        heap.word(thread + dispatch + 8 * entry, CODE + 0x40 * place);
    }
    heap.half(jit + 168, 1);
    heap.word(jit + 384, HEAP + TRACES);
    heap.half(jit + 396, 4);
    heap.word(jit + 1824, HEAP + PROTOTYPE + 108);
    heap.half(jit + 1832, 7 << 16 | 40_000);
    // The chain: function, prototype, main thread.
    heap.word(FUNCTION, HEAP + PROTOTYPE);
    heap.tag(FUNCTION, 8);
    heap.word(FUNCTION + 32, HEAP + PROTOTYPE + 104);
    heap.word(PROTOTYPE, HEAP);
    heap.tag(PROTOTYPE, 7);
    heap.half(PROTOTYPE + 12, 20);
    heap.word(PROTOTYPE + 32, HEAP + PROTOTYPE + 104 + 96);
    heap.half(PROTOTYPE + 56, 0x200);
    heap.word(PROTOTYPE + 64, HEAP + NAME);
    heap.half(PROTOTYPE + 76, 9);
    heap.word(PROTOTYPE + 80, HEAP + PROTOTYPE + 104 + 80);
    heap.half(PROTOTYPE + 104, funcf as u32);
    heap.half(PROTOTYPE + 108, 80);
    heap.tag(NAME, 4);
    heap.half(NAME + 20, 4);
    heap.put(NAME + 24, b"@a.b");
    heap.word(TRACES + 8, HEAP + TRACE);
    heap.put(TRACE + 9, &[9, 1]);
    heap.half(TRACE + 12, 0x8004);
    heap.word(TRACE + 32, (HEAP + IR).wrapping_sub(8 * 0x8000));
    heap.half(TRACE + 40, 0x8000);
    heap.half(TRACE + 44, 2);
    heap.word(TRACE + 48, HEAP + SNAPSHOTS);
    heap.word(TRACE + 56, HEAP + MAP);
    heap.word(TRACE + 64, HEAP + PROTOTYPE);
    heap.word(TRACE + 72, HEAP + PROTOTYPE + 112);
    heap.half(TRACE + 84, 0x80);
    heap.word(TRACE + 88, CODE);
    heap.half(TRACE + 104, 1);
    heap.word(MAP, (HEAP + PROTOTYPE + 116) << 8);
    heap
}

fn mapping(start: u64, len: u64, write: bool) -> Mapping {
    Mapping {
        start,
        end: start + len,
        permissions: Permissions {
            read: true,
            write,
            execute: !write,
            shared: false,
        },
        offset: 0,
        device: (0, 0),
        inode: u64::from(!write),
        path: None,
    }
}

fn memory(heap: Heap) -> FixtureMemory {
    let mut memory = FixtureMemory::new();
    memory
        .add(HEAP, heap.0)
        .add(CODE, vec![0xe9; CODE_LEN as usize]);
    memory
}

fuzz_target!(|data: &[u8]| {
    let Some((&version, mut patches)) = data.split_first() else {
        return;
    };
    let unpatched = patches.is_empty();
    let before = memory(made_up(usize::from(version)));
    let mut heap = made_up(usize::from(version));
    while let [low, high, len, rest @ ..] = patches {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        heap.put(4 * u64::from(u16::from_le_bytes([*low, *high])), bytes);
        patches = rest;
    }
    let memory = memory(heap);
    let mappings = [
        mapping(HEAP, HEAP_LEN as u64, true),
        mapping(CODE, CODE_LEN, false),
    ];
    let scan = find_vms(&memory, &mappings).expect("nothing final happens to a fixture");
    assert!(!unpatched || scan.vms.len() == 1, "{:?}", scan.rejected);
    for vm in &scan.vms {
        let Ok(census) = census(&memory, &mappings, vm) else {
            continue;
        };
        assert!(
            !census.changed.contains(&throughline_target::Part::Traces),
            "a fixture does not change"
        );
        let as_built = census.starts.iter().any(|start| start.given_up)
            && census
                .traces
                .iter()
                .all(|entry| entry.snapshots_error.is_none());
        assert!(!unpatched || as_built, "{census:?}");
        for entry in &census.traces {
            assert!(entry.inlined.is_sorted() && entry.places.is_sorted());
        }
        for start in &census.starts {
            assert!(start.aborts <= throughline_target::ABORTS_TO_GIVE_UP);
            let _ = census.calls(start.start.bytecode_start);
            let _ = place_of(&memory, vm, start.start.pc);
        }
        if let (Ok(first), Ok(second)) = (jit_pulse(&before, vm), jit_pulse(&memory, vm)) {
            let parameters = jit_parameters(&memory, vm).ok().flatten();
            let mut watch = JitWatch::new(vm, parameters, first);
            let _ = watch.see(second.clone());
            assert!(watch.see(second).is_empty(), "nothing happened in between");
        }
    }
});
