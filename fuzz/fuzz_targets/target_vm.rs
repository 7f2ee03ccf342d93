//! A VM in which any bytes are overwritten, read by every reader of VMs.
//!
//! The input is a list of patches: place (u16, in words of 4 bytes), length (u8), that many bytes.
//! The first byte says which version the VM is of, so that the readers are entered also where the
//! patches leave the VM recognisable.
#![no_main]

mod vm;

use libfuzzer_sys::fuzz_target;
use throughline_target::{
    FixtureMemory, Mapping, Permissions, fast_function_names, find_vms, handlers, machine_code,
    prototype, snapshots, trace, trace_at, trace_count, unseen,
};

use vm::{CODE, CODE_LEN, HEAP, HEAP_LEN, Heap, VERSIONS};

/// Places of the objects in the heap, behind the 6.5 KiB of the VM itself.
const STACK: u64 = 0x2000;
const PROTOTYPE: u64 = 0x3000;
const NAME: u64 = 0x3400;
const TRACES: u64 = 0x3800;
const TRACE: u64 = 0x3900;
const AREA: u64 = 0x3a00;
const IR: u64 = 0x3c00;
const SNAPSHOTS: u64 = 0x3c80;
const SNAPSHOT_MAP: u64 = 0x3d00;
const CLOSURE: u64 = 0x3d80;
const GLOBALS: u64 = 0x4000;
const NODES: u64 = 0x4100;
const FUNCTION: u64 = 0x5000;

fn made_up(version: usize) -> Heap {
    let (thread, cur_l, jit, dispatch, param, funcf) = VERSIONS[version % VERSIONS.len()];
    let mut heap = Heap(vec![0; HEAP_LEN]);
    heap.tag(0, 6);
    heap.word(16, HEAP + thread);
    heap.word(48, HEAP + STACK + 0x100);
    heap.word(56, HEAP + STACK);
    heap.word(72, HEAP + GLOBALS);
    heap.word(88, 0x100);
    heap.word(thread + 192, HEAP);
    heap.word(thread + cur_l, HEAP);
    for number in 0..15u64 {
        heap.half(thread + jit + param + 4 * number, 56);
    }
    for entry in 0..funcf + 8 + 57 + funcf {
        let place = if entry < funcf + 8 + 57 {
            entry
        } else {
            entry - (funcf + 8 + 57)
        };
        heap.word(thread + dispatch + 8 * entry, CODE + 0x40 * place);
    }
    heap.word(thread + jit + 384, HEAP + TRACES);
    heap.half(thread + jit + 396, 4);
    heap.word(thread + jit + 3048, HEAP + AREA);
    heap.word(AREA + 8, 0x200);
    heap.tag(PROTOTYPE, 7);
    heap.half(PROTOTYPE + 12, 20);
    heap.half(PROTOTYPE + 56, 0x200);
    heap.word(PROTOTYPE + 64, HEAP + NAME);
    heap.half(PROTOTYPE + 76, 9);
    heap.word(PROTOTYPE + 80, HEAP + PROTOTYPE + 104 + 80);
    heap.tag(NAME, 4);
    heap.half(NAME + 20, 4);
    heap.put(NAME + 24, b"@a.b");
    heap.word(TRACES + 8, HEAP + TRACE);
    heap.tag(TRACE, 9);
    heap.word(TRACE + 64, HEAP + PROTOTYPE);
    heap.word(TRACE + 72, HEAP + PROTOTYPE + 108);
    heap.half(TRACE + 84, 0x80);
    heap.word(TRACE + 88, HEAP + AREA + 16);
    heap.put(TRACE + 104, &1u16.to_le_bytes());
    // Two snapshots: one of the function itself, one inside of a function that it has called.
    heap.put(TRACE + 10, &2u16.to_le_bytes());
    heap.half(TRACE + 12, 0x8001);
    heap.word(TRACE + 32, (HEAP + IR).wrapping_sub(8 * 0x7ffa));
    heap.half(TRACE + 40, 0x7ffa);
    heap.half(TRACE + 44, 6);
    heap.word(TRACE + 48, HEAP + SNAPSHOTS);
    heap.word(TRACE + 56, HEAP + SNAPSHOT_MAP);
    // {IR_KGC of a function, the function}, {IR_KNUM, the link}, and two of no account.
    heap.put(IR + 4, &[8, 24]);
    heap.word(IR + 8, HEAP + CLOSURE);
    heap.put(IR + 20, &[14, 28]);
    heap.word(IR + 24, HEAP + PROTOTYPE + 112);
    heap.half(SNAPSHOTS + 12, 2);
    heap.put(SNAPSHOTS + 18, &0x20u16.to_le_bytes());
    heap.put(SNAPSHOTS + 22, &[2]);
    heap.word(SNAPSHOT_MAP, (HEAP + PROTOTYPE + 108) << 8);
    heap.put(SNAPSHOT_MAP + 8, &0x0300_7ffau32.to_le_bytes());
    heap.put(SNAPSHOT_MAP + 12, &0x0401_7ffcu32.to_le_bytes());
    heap.word(SNAPSHOT_MAP + 16, (HEAP + PROTOTYPE + 108) << 8 | 3);
    heap.tag(CLOSURE, 8);
    heap.word(CLOSURE + 32, HEAP + PROTOTYPE + 104);
    heap.put(PROTOTYPE + 104, &[funcf as u8]);
    heap.tag(GLOBALS, 11);
    heap.word(GLOBALS + 40, HEAP + NODES);
    heap.half(GLOBALS + 52, 7);
    heap.word(NODES, (0x1ffff - 8) << 47 | (HEAP + FUNCTION));
    heap.word(NODES + 8, (0x1ffff - 4) << 47 | (HEAP + NAME));
    heap.tag(FUNCTION, 8);
    heap.put(FUNCTION + 10, &[5]);
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

fuzz_target!(|data: &[u8]| {
    let Some((&version, mut patches)) = data.split_first() else {
        return;
    };
    let mut heap = made_up(usize::from(version));
    let unpatched = patches.is_empty();
    let mut code = vec![0xe9; CODE_LEN as usize];
    while let [low, high, len, rest @ ..] = patches {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        heap.put(4 * u64::from(u16::from_le_bytes([*low, *high])), bytes);
        let at = usize::from(*low) * 64;
        code[at..at + bytes.len().min(64)].copy_from_slice(&bytes[..bytes.len().min(64)]);
        patches = rest;
    }
    let mut memory = FixtureMemory::new();
    memory.add(HEAP, heap.0).add(CODE, code);
    let mappings = [
        mapping(HEAP, HEAP_LEN as u64, true),
        mapping(CODE, CODE_LEN, false),
    ];
    let scan = find_vms(&memory, &mappings).expect("nothing final happens to a fixture");
    assert!(!unpatched || scan.vms.len() == 1, "{:?}", scan.rejected);
    for vm in &scan.vms {
        if let Ok(pieces) = handlers(&memory, vm, CODE..CODE + CODE_LEN) {
            assert!(pieces.iter().all(|piece| piece.address < piece.end));
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].address));
        }
        let _ = handlers(&memory, vm, CODE..CODE + 1);
        if let Ok(names) = fast_function_names(&memory, vm) {
            names.name(5);
        }
        let areas = machine_code(&memory, vm)
            .map(|code| code.areas)
            .unwrap_or_default();
        for area in areas.iter().take(8) {
            let _ = trace_at(&memory, vm, area.start + 16);
        }
        for number in 0..trace_count(&memory, vm).unwrap_or(0).min(8) {
            if let Ok(trace) = trace(&memory, vm, number) {
                read_prototype(&memory, vm, trace.start_bytecode, trace.start_pc);
                if let Ok(read) = snapshots(&memory, vm, &trace) {
                    assert_eq!(read.list.len(), usize::from(trace.snapshots));
                    assert_eq!(unseen(&memory, vm, &trace, &read).len(), read.list.len());
                    assert!(read.at(0x40).is_none_or(|index| index < read.list.len()));
                }
            }
        }
        read_prototype(&memory, vm, HEAP + PROTOTYPE + 104, HEAP + PROTOTYPE + 108);
    }
});

fn read_prototype(memory: &FixtureMemory, vm: &throughline_target::Vm, start: u64, pc: u64) {
    if let Ok(read) = prototype(memory, &vm.layout, start) {
        for pc in [
            pc,
            pc.wrapping_add(4),
            start.wrapping_add(4 * u64::from(read.instructions)),
        ] {
            assert!(read.line_at(pc).is_err() || read.contains(pc));
        }
        assert!(!read.to_string().chars().any(char::is_control));
    }
}
