use super::*;
use crate::FixtureMemory;
use crate::maps::Permissions;

const BASE: u64 = 0x7000_0000_0000;

/// The bytes of a probe with one function and one start, written field by field from FORMATS.md.
fn bytes() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + 2 * FUNCTION_BYTES + 2 * START_BYTES];
    put(&mut bytes, 0, b"TLPROBE1");
    let numbers: [(usize, u32); 9] = [
        (8, 248),
        (12, 256),
        (16, 320),
        (20, 2),
        (24, 2),
        (28, 1),
        (32, 1),
        (36, 7),
        (112, 0),
    ];
    for (at, number) in numbers {
        put(&mut bytes, at, &number.to_le_bytes());
    }
    let counts: [(usize, f64); 6] = [
        (40, 1.7e15 + 0.5),
        (48, 12.0),
        (56, 3.0),
        (64, 9.0),
        (72, 1.0),
        (96, 2.0),
    ];
    for (at, count) in counts {
        put(&mut bytes, at, &count.to_le_bytes());
    }
    put(&mut bytes, 104, &0x5555_0000_1000_u64.to_le_bytes());
    let function = HEADER_BYTES;
    put(&mut bytes, function, &1080.0_f64.to_le_bytes());
    for (at, number) in [(8, 2_u32), (12, 4), (16, 3)] {
        put(&mut bytes, function + at, &number.to_le_bytes());
    }
    put(&mut bytes, function + 20, &6_u16.to_le_bytes());
    put(&mut bytes, function + 24, b"mod.fn");
    let start = HEADER_BYTES + 2 * FUNCTION_BYTES;
    put(&mut bytes, start, &4_u32.to_le_bytes());
    put(&mut bytes, start + 4, &40_u32.to_le_bytes());
    for (at, count) in [(8, 12.0_f64), (16, 0.0), (24, 11.0), (32, 1.0)] {
        put(&mut bytes, start + at, &count.to_le_bytes());
    }
    put(&mut bytes, start + 44, &6_u16.to_le_bytes());
    put(&mut bytes, start + 46, &18_u16.to_le_bytes());
    put(&mut bytes, start + 48, b"FUNCF");
    put(&mut bytes, start + 56, b"@a.lua");
    put(&mut bytes, start + 224, b"NYI: bytecode FNEW");
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn mapping(size: u64) -> Mapping {
    Mapping {
        start: BASE,
        end: BASE + size,
        permissions: Permissions {
            read: true,
            write: true,
            execute: false,
            shared: false,
        },
        offset: 0,
        device: (0, 1),
        inode: 7,
        path: Some(PATH.to_vec()),
    }
}

#[test]
fn every_field_is_read_from_where_the_format_puts_it() {
    let bytes = bytes();
    let mut memory = FixtureMemory::new();
    memory.add(BASE, bytes.clone());
    let mapping = mapping(bytes.len() as u64);
    assert_eq!(probe_mappings(std::slice::from_ref(&mapping)).count(), 1);
    let probe = read_probe(&memory, &mapping).unwrap();
    let function = ProbeFunction {
        name: "mod.fn".to_owned(),
        calls: 1080,
        installed: ProbeInstalled::AfterLoad,
        captured_references: 4,
        search_cut: true,
        is_vararg: true,
        is_local: false,
    };
    let start = ProbeStart {
        source: "@a.lua".to_owned(),
        line: 40,
        op: "FUNCF".to_owned(),
        attempts: 12,
        compiled: 0,
        aborted: 11,
        retried: 1,
        reason: "NYI: bytecode FNEW".to_owned(),
    };
    let expected = Probe {
        generation_us: 1_700_000_000_000_000,
        counting: true,
        events: Some(ProbeEvents {
            start: 12,
            stop: 3,
            abort: 9,
            flush: 1,
            starts: vec![start],
            starts_overflow: 0,
        }),
        functions: vec![function],
        functions_overflow: 0,
        errors: 2,
        requests_pointer: 0x5555_0000_1000,
        requests_function: Some(0),
    };
    assert_eq!(probe, expected);
}

#[test]
fn impossible_numbers_are_refused() {
    let cases: [(usize, &[u8]); 9] = [
        (8, &247_u32.to_le_bytes()),
        (12, &u32::MAX.to_le_bytes()),
        (20, &u32::MAX.to_le_bytes()),
        (28, &3_u32.to_le_bytes()),
        (32, &u32::MAX.to_le_bytes()),
        (48, &f64::NAN.to_le_bytes()),
        (48, &(-1.0_f64).to_le_bytes()),
        (112, &1_u32.to_le_bytes()),
        (HEADER_BYTES + 8, &9_u32.to_le_bytes()),
    ];
    for (at, value) in cases {
        let mut bytes = bytes();
        put(&mut bytes, at, value);
        assert!(
            matches!(parse_probe(&bytes), Err(ProbeError::Damaged { .. })),
            "{at}"
        );
    }
    assert_eq!(parse_probe(b""), Err(ProbeError::NoProbe));
    assert_eq!(parse_probe(b"TLPROBE2"), Err(ProbeError::NoProbe));
    let whole = bytes();
    for len in 8..whole.len() - START_BYTES {
        assert!(parse_probe(&whole[..len]).is_err(), "{len}");
    }
}

#[test]
fn numbers_greater_than_the_mapping_cost_no_memory() {
    let mut bytes = bytes();
    put(&mut bytes, 20, &4096_u32.to_le_bytes());
    put(&mut bytes, 28, &4096_u32.to_le_bytes());
    let mut memory = FixtureMemory::new();
    memory.add(BASE, bytes.clone());
    let refused = read_probe(&memory, &mapping(bytes.len() as u64));
    assert!(
        matches!(
            refused,
            Err(ProbeError::Memory(MemoryError::TooLong { .. }))
        ),
        "{refused:?}"
    );
}

#[test]
fn a_text_that_did_not_fit_shows_where_it_was_cut() {
    let mut bytes = bytes();
    put(&mut bytes, HEADER_BYTES + 20, &500_u16.to_le_bytes());
    let start = HEADER_BYTES + 2 * FUNCTION_BYTES;
    put(&mut bytes, start + 44, &500_u16.to_le_bytes());
    put(&mut bytes, start + 56, b"\xffgateway");
    let probe = parse_probe(&bytes).unwrap();
    assert!(probe.functions[0].name.starts_with("mod.fn"));
    assert!(probe.functions[0].name.ends_with('\u{2026}'));
    let source = &probe.events.unwrap().starts[0].source;
    assert!(source.starts_with("\u{2026}\u{fffd}gateway"), "{source:?}");
}

/// Memory in which a field goes on changing between two reads.
struct Changing<'a> {
    bytes: std::cell::RefCell<Vec<u8>>,
    change: &'a dyn Fn(&mut [u8]),
}

impl Memory for Changing<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let mut bytes = self.bytes.borrow_mut();
        (self.change)(&mut bytes);
        let at = (address - BASE) as usize;
        into.copy_from_slice(&bytes[at..at + into.len()]);
        Ok(())
    }
}

fn read_changing(change: &dyn Fn(&mut [u8])) -> Result<Probe, ProbeError> {
    let bytes = bytes();
    let size = bytes.len() as u64;
    let memory = Changing {
        bytes: bytes.into(),
        change,
    };
    read_probe(&memory, &mapping(size))
}

fn change_calls(bytes: &mut [u8], by: f64) {
    let field = bytes[HEADER_BYTES..HEADER_BYTES + 8].try_into().unwrap();
    put(
        bytes,
        HEADER_BYTES,
        &(f64::from_le_bytes(field) + by).to_le_bytes(),
    );
}

#[test]
fn a_count_that_goes_on_is_read_and_one_that_jumps_is_not() {
    let going_on = read_changing(&|bytes| change_calls(bytes, 3.0)).unwrap();
    assert!(going_on.functions[0].calls > 1080);
    for by in [-1.0, 1e9] {
        assert_eq!(
            read_changing(&|bytes| change_calls(bytes, by)),
            Err(ProbeError::ChangedWhileRead)
        );
    }
    let being_written = read_changing(&|bytes| {
        put(
            bytes,
            HEADER_BYTES + 2 * FUNCTION_BYTES,
            &5_u32.to_le_bytes(),
        );
    });
    assert_eq!(being_written, Err(ProbeError::ChangedWhileRead));
}
