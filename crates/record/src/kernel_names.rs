//! Kernel frames, named by the kernel itself, each address once.

use std::os::fd::{AsFd, OwnedFd};

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, Module, Profile};
use throughline_symbols::Name;
use throughline_wire::limits::KERNEL_SYMBOL_TEXT;

use crate::sys;

/// Why an address has no name: no function of the kernel or of its modules is there (any more).
const NO_SYMBOL: &str = "no_symbol";

/// Names of kernel addresses.
pub struct KernelNames {
    namer: OwnedFd,
    frames: FxHashMap<u64, FrameId>,
}

impl KernelNames {
    /// `namer` is the BPF program that names an address.
    #[must_use]
    pub fn new(namer: OwnedFd) -> Self {
        Self {
            namer,
            frames: FxHashMap::default(),
        }
    }

    /// The frame of a kernel address.
    pub fn frame(&mut self, profile: &mut Profile, address: u64) -> FrameId {
        if let Some(&frame) = self.frames.get(&address) {
            return frame;
        }
        let text = self.ask(address);
        let symbol = text.as_deref().and_then(parse);
        let module = format!("[{}]", symbol.as_ref().map_or("kernel", |s| s.module));
        let strings = &mut profile.strings;
        let mut frame = match &symbol {
            Some(symbol) => {
                // The kernel's Rust functions are mangled like any other.
                let name = Name::of(symbol.function).display;
                let mut frame = Frame::new(FrameKind::Kernel, strings.intern(&name));
                // Kernel addresses are secret and differ at every boot: only the offset in the function is kept.
                frame.address = symbol.offset;
                frame
            }
            None => {
                let mut frame = Frame::new(FrameKind::Kernel, strings.intern(&module));
                frame.name_reason = Some(strings.intern(NO_SYMBOL));
                frame
            }
        };
        let path = strings.intern(&module);
        frame.module = Some(profile.modules.intern(Module {
            path,
            build_id: None,
        }));
        let frame = profile.frames.intern(frame);
        self.frames.insert(address, frame);
        frame
    }

    fn ask(&self, address: u64) -> Option<String> {
        let mut symbol = [0; 8 + KERNEL_SYMBOL_TEXT];
        symbol[..8].copy_from_slice(&address.to_le_bytes());
        sys::run_program(self.namer.as_fd(), &mut symbol).ok()?;
        let text = symbol[8..].split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// A kernel symbol as `%pS` prints it (Documentation/core-api/printk-formats.rst).
#[derive(Debug, PartialEq, Eq)]
struct Symbol<'a> {
    function: &'a str,
    /// From the function's start.
    offset: u64,
    /// `kernel` for the image.
    module: &'a str,
}

/// `vfs_read+0x1c/0x320`, `ext4_sync_file+0x9/0x40 [ext4]`; an address without a symbol is printed as a number.
fn parse(text: &str) -> Option<Symbol<'_>> {
    let (place, module) = match text.split_once(" [") {
        Some((place, module)) => (place, module.trim_end_matches(']')),
        None => (text, "kernel"),
    };
    let (function, offset) = place.rsplit_once("+0x")?;
    let (offset, _size) = offset.split_once("/0x")?;
    Some(Symbol {
        function,
        offset: u64::from_str_radix(offset, 16).ok()?,
        module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_read_as_the_kernel_prints_it() {
        assert_eq!(
            parse("vfs_read+0x1c/0x320"),
            Some(Symbol {
                function: "vfs_read",
                offset: 0x1c,
                module: "kernel",
            })
        );
        assert_eq!(
            parse("ext4_sync_file+0x9/0x40 [ext4]"),
            Some(Symbol {
                function: "ext4_sync_file",
                offset: 9,
                module: "ext4",
            })
        );
    }

    #[test]
    fn a_bare_address_is_no_name() {
        assert_eq!(parse("0xffffffffc0a01234"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("cut_in_the_middle+0x1"), None);
    }
}
