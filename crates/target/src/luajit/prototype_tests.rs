use super::*;
use crate::FixtureMemory;
use crate::luajit::layout::LAYOUTS;

const PROTOTYPE: u64 = 0x10000;
const NAME: u64 = 0x20000;
const BYTECODE: u64 = PROTOTYPE + 104;

/// A function `@a.lua` of 4 instructions on lines 10, 11, 11 and 13 (lj_obj.h, by hand).
fn fixture() -> FixtureMemory {
    let mut bytes = vec![0; 104 + 4 * 4 + 3];
    bytes[9] = 7;
    bytes[12..16].copy_from_slice(&4u32.to_le_bytes());
    let len = bytes.len() as u32;
    bytes[56..60].copy_from_slice(&len.to_le_bytes());
    bytes[64..72].copy_from_slice(&NAME.to_le_bytes());
    bytes[72..76].copy_from_slice(&10u32.to_le_bytes());
    bytes[76..80].copy_from_slice(&3u32.to_le_bytes());
    bytes[80..88].copy_from_slice(&(BYTECODE + 16).to_le_bytes());
    bytes[120..].copy_from_slice(&[1, 1, 3]);
    let mut name = vec![0; 24];
    name[9] = 4;
    name[20..24].copy_from_slice(&6u32.to_le_bytes());
    name.extend(b"@a.lua\0");
    let mut memory = FixtureMemory::new();
    memory.add(PROTOTYPE, bytes).add(NAME, name);
    memory
}

fn read(memory: &dyn Memory) -> Result<Prototype, PrototypeError> {
    prototype(memory, &LAYOUTS[0], BYTECODE)
}

#[test]
fn each_instruction_has_its_own_line_and_others_have_none() {
    let prototype = read(&fixture()).expect("a prototype");
    let lines: Vec<_> = (0..6)
        .map(|n| prototype.line_at(BYTECODE + 4 * n))
        .collect();
    let outside = Err(NoLine::Outside);
    assert_eq!(lines, [outside, Ok(10), Ok(11), Ok(11), Ok(13), outside]);
    assert_eq!(prototype.line_at(BYTECODE + 5), outside);
    assert_eq!(prototype.to_string(), "a.lua:10");
}

#[test]
fn a_hostile_field_is_an_error_with_a_reason() {
    let cases: [(u64, &[u8], &str); 6] = [
        (9, &[8], "another type"),
        (12, &[0, 0, 0, 0], "number of instructions"),
        (12, &[0xff, 0xff, 0xff, 0xff], "number of instructions"),
        (56, &[50, 0, 0, 0], "its size"),
        (76, &[0xff, 0xff, 0xff, 0x7f], "line numbers"),
        (80, &[8, 0, 0, 0, 0, 0, 0, 0], "line numbers"),
    ];
    for (offset, bytes, reason) in cases {
        let mut memory = fixture();
        assert!(memory.write(PROTOTYPE + offset, bytes));
        let error = read(&memory).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut memory = fixture();
    assert!(memory.write(NAME + 9, &[5]));
    let error = read(&memory).expect_err("no string").to_string();
    assert!(error.contains("chunk name"), "{error}");
}

#[test]
fn a_name_longer_than_memory_is_an_error_and_costs_no_memory() {
    let mut memory = fixture();
    assert!(memory.write(NAME + 20, &u32::MAX.to_le_bytes()));
    assert!(matches!(
        read(&memory),
        Err(PrototypeError::Memory(MemoryError::Unmapped { .. }))
    ));
}

#[test]
fn a_long_name_is_cut_and_says_so() {
    let mut memory = FixtureMemory::new();
    let mut name = vec![0; 24];
    name[9] = 4;
    name[20..24].copy_from_slice(&100_000u32.to_le_bytes());
    name.extend(vec![b'x'; 100_000]);
    memory.add(NAME, name);
    let mut original = vec![0; 123];
    fixture().read(PROTOTYPE, &mut original).expect("mapped");
    memory.add(PROTOTYPE, original);
    let prototype = read(&memory).expect("a prototype");
    assert!(prototype.chunk_name_cut);
    assert_eq!(prototype.chunk_name.len(), 4096);
    assert_eq!(
        prototype.source(),
        format!("[string \"{}...\"]", "x".repeat(44))
    );
}

/// Memory in which the prototype's first line is another one at every read.
struct Changing(FixtureMemory, std::cell::Cell<u8>);

impl Memory for Changing {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        self.0.read(address, into)?;
        if address == PROTOTYPE && into.len() == 104 {
            self.1.set(self.1.get() + 1);
            into[72] = self.1.get();
        }
        Ok(())
    }
}

#[test]
fn a_prototype_that_keeps_changing_is_an_error_after_two_looks() {
    let memory = Changing(fixture(), std::cell::Cell::new(0));
    assert_eq!(read(&memory), Err(PrototypeError::Changed));
    assert_eq!(memory.1.get(), 4);
}
