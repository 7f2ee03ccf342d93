//! Memory of a made-up VM: where it lies, the versions it can be of, and how words are put into it.

/// Where the VM's memory and its interpreter's code lie.
pub const HEAP: u64 = 0x7f00_0000_0000;
pub const CODE: u64 = 0x5500_0000_0000;
pub const HEAP_LEN: usize = 0x8000;
pub const CODE_LEN: u64 = 0x4000;

/// (thread size, cur_L, jit_state, dispatch, param, funcf) of three versions (`offsetof`).
pub const VERSIONS: [(u64, u64, u64, u64, u64, u64); 3] = [
    (112, 368, 736, 4008, 1632, 89),
    (96, 368, 728, 3968, 1636, 89),
    (96, 376, 744, 4000, 1636, 96),
];

pub struct Heap(pub Vec<u8>);

impl Heap {
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize % HEAP_LEN;
        let len = bytes.len().min(HEAP_LEN - at);
        self.0[at..at + len].copy_from_slice(&bytes[..len]);
    }

    pub fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    pub fn half(&mut self, at: u64, half: u32) {
        self.put(at, &half.to_le_bytes());
    }

    /// An object's type tag.
    pub fn tag(&mut self, at: u64, tag: u8) {
        self.put(at + 9, &[tag]);
    }
}
