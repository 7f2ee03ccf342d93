//! Kernel frames, named from /proc/kallsyms, each address once.

use std::ops::Range;

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, Module, Profile};
use throughline_symbols::{Kallsyms, Lookup};

/// Names of kernel addresses.
pub struct KernelNames {
    symbols: Option<Kallsyms>,
    interrupt_entry: Range<u64>,
    frames: FxHashMap<u64, FrameId>,
}

impl KernelNames {
    /// Nothing is read before the first address is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            symbols: None,
            interrupt_entry: 0..0,
            frames: FxHashMap::default(),
        }
    }

    /// Reads the names, which takes a while: better before the first sample than when it waits.
    pub fn read(&mut self) {
        let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
        self.interrupt_entry = interrupt_entry(&text);
        self.symbols = Some(Kallsyms::parse(&text));
    }

    /// The code through which hardware interrupts enter the kernel; empty when the kernel hides it or names have not been read.
    #[must_use]
    pub fn interrupt_entry(&self) -> Range<u64> {
        self.interrupt_entry.clone()
    }

    /// The frame of a kernel address.
    pub fn frame(&mut self, profile: &mut Profile, address: u64) -> FrameId {
        if let Some(&frame) = self.frames.get(&address) {
            return frame;
        }
        if self.symbols.is_none() {
            self.read();
        }
        let symbols = self.symbols.get_or_insert_with(|| Kallsyms::parse(&[]));
        let lookup = symbols.lookup(address);
        let module = format!("[{}]", symbols.module(address).unwrap_or("kernel"));
        let strings = &mut profile.strings;
        let mut frame = Frame::new(
            FrameKind::Kernel,
            strings.intern(&lookup.label(&module, address)),
        );
        frame.name_reason = lookup
            .reason()
            .map(|reason| strings.intern(reason.as_str()));
        if let Lookup::Named { function_start, .. } = lookup {
            // Kernel addresses are secret and differ at every boot: only the offset in the function is kept.
            frame.address = address.wrapping_sub(function_start);
        }
        let path = strings.intern(&module);
        frame.module = Some(profile.modules.intern(Module {
            path,
            build_id: None,
        }));
        let frame = profile.frames.intern(frame);
        self.frames.insert(address, frame);
        frame
    }
}

/// The entry stubs of device and timer interrupts lie side by side (arch/x86/entry/entry_64.S, asm/idtentry.h); those of
/// exceptions, which are the running thread's own doing, come before them.
fn interrupt_entry(kallsyms: &[u8]) -> Range<u64> {
    let (mut first, mut end) = (u64::MAX, 0);
    for line in kallsyms.split(|&byte| byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let mut words = line.split(' ');
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if name == "asm_common_interrupt" || name.starts_with("asm_sysvec_") {
            /// Size of one stub; the assembler aligns them to half of it.
            const STUB_BYTES: u64 = 64;
            let start = u64::from_str_radix(address, 16).unwrap_or(0);
            first = first.min(start);
            end = end.max(start.saturating_add(STUB_BYTES));
        }
    }
    if first == 0 || first > end {
        0..0
    } else {
        first..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupts_entry_is_the_range_of_its_stubs_and_nothing_when_hidden() {
        let text =
            b"ffffffff81000c60 T asm_exc_page_fault\nffffffff81000d40 T asm_common_interrupt\n\
                     ffffffff81000f50 T asm_sysvec_kvm_asyncpf_interrupt\n";
        assert_eq!(
            interrupt_entry(text),
            0xffff_ffff_8100_0d40..0xffff_ffff_8100_0f90
        );
        assert_eq!(
            interrupt_entry(b"0000000000000000 T asm_common_interrupt\n"),
            0..0
        );
        assert_eq!(interrupt_entry(b""), 0..0);
    }
}
