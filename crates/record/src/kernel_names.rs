//! Kernel frames, named from /proc/kallsyms, each address once.

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, Module, Profile};
use throughline_symbols::{Kallsyms, Lookup};

/// Names of kernel addresses.
pub struct KernelNames {
    symbols: Option<Kallsyms>,
    frames: FxHashMap<u64, FrameId>,
}

impl KernelNames {
    /// Nothing is read before the first address is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            symbols: None,
            frames: FxHashMap::default(),
        }
    }

    /// Reads the names, which takes a while: better before the first sample than when it waits.
    pub fn read(&mut self) {
        self.symbols.get_or_insert_with(read_kallsyms);
    }

    /// The frame of a kernel address.
    pub fn frame(&mut self, profile: &mut Profile, address: u64) -> FrameId {
        if let Some(&frame) = self.frames.get(&address) {
            return frame;
        }
        let symbols = self.symbols.get_or_insert_with(read_kallsyms);
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

fn read_kallsyms() -> Kallsyms {
    Kallsyms::parse(&std::fs::read("/proc/kallsyms").unwrap_or_default())
}
