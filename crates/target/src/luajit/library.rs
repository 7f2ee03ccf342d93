//! Which Lua a file contains.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSegment, ObjectSymbol};

use super::interpreter::interpreter_range;

/// The Lua implementation in an ELF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LuaLibrary {
    /// LuaJIT, as a library or linked into a program.
    LuaJit {
        /// Such as "LuaJIT 2.1.0-beta3".
        version: String,
        /// How its objects refer to each other.
        references: References,
    },
    /// The interpreter of PUC-Rio, whose VM this crate cannot read: its frames lie on the C stack
    /// of the interpreter loop and its structures differ in every minor version.
    PucLua {
        /// Such as "5.1.5".
        version: String,
    },
    /// Neither.
    None,
}

/// How objects of a LuaJIT VM refer to each other, which decides every offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    /// 64-bit references (GC64, the default for x86-64 since 2022): this crate can read the VM.
    Gc64,
    /// 32-bit references (`LUAJIT_DISABLE_GC64`, and the default before): it cannot.
    Compact,
    /// The file has no interpreter for x86-64 that could tell.
    Unknown,
}

/// Longest version text that is looked at.
const VERSION_MAX: usize = 40;

/// Says which Lua an ELF file contains, with or without a symbol table.
///
/// LuaJIT is recognised by its version text together with one more witness (the interpreter's
/// stack frame or a `luaJIT_` symbol), so that a file that only mentions LuaJIT is not taken for
/// one; PUC Lua by the identification text that its licence notice is part of.
pub fn identify_library(elf: &[u8]) -> LuaLibrary {
    if let Some(version) = luajit_version(elf) {
        let references = references(elf);
        if references != References::Unknown || exports_luajit(elf) {
            return LuaLibrary::LuaJit {
                version,
                references,
            };
        }
    }
    match puc_version(elf) {
        Some(version) => LuaLibrary::PucLua { version },
        None => LuaLibrary::None,
    }
}

/// The interpreter of a GC64 build takes the tag off a value by shifting it left and right by 17
/// bits (the macro `cleartp` of vm_x64.dasc), in most handlers; one with 32-bit references never.
fn references(elf: &[u8]) -> References {
    let Some(code) = interpreter_code(elf) else {
        return References::Unknown;
    };
    let is_shift_by_17 = |bytes: &[u8]| matches!(bytes, [0x48..=0x4f, 0xc1, 0xe0..=0xef, 17]);
    if code
        .windows(4)
        .filter(|bytes| is_shift_by_17(bytes))
        .count()
        >= CLEARED_TAGS_MIN
    {
        References::Gc64
    } else {
        References::Compact
    }
}

/// GC64 interpreters hold some hundred such shifts; a stray match in other code is one or two.
const CLEARED_TAGS_MIN: usize = 16;

fn interpreter_code(elf: &[u8]) -> Option<&[u8]> {
    let range = interpreter_range(elf).ok()?;
    let file = ElfFile64::<object::LittleEndian>::parse(elf).ok()?;
    let segments = file.segments();
    segments.into_iter().find_map(|segment| {
        segment
            .data_range(range.start, range.end - range.start)
            .ok()
            .flatten()
    })
}

/// `LUAJIT_VERSION` (luajit.h) as a string of its own in the file's constants.
fn luajit_version(bytes: &[u8]) -> Option<String> {
    versions_after(bytes, b"LuaJIT ")
        .find(|(text, next)| {
            text.starts_with("2.") && text.bytes().filter(|&b| b == b'.').count() == 2 && *next == 0
        })
        .map(|(text, _)| format!("LuaJIT {text}"))
}

/// `lua_ident` (lapi.c): "$Lua: Lua 5.1.5 Copyright..." in 5.1, "$LuaVersion: Lua 5.x.y" after.
fn puc_version(bytes: &[u8]) -> Option<String> {
    [&b"$Lua: Lua "[..], &b"$LuaVersion: Lua "[..]]
        .iter()
        .find_map(|prefix| {
            versions_after(bytes, prefix)
                .find(|(text, next)| text.starts_with("5.") && *next == b' ')
                .map(|(text, _)| text.to_owned())
        })
}

/// Each text of letters, digits, dots and dashes behind `prefix`, and the byte that ends it.
fn versions_after<'a>(
    bytes: &'a [u8],
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a str, u8)> + 'a {
    memchr::memmem::find_iter(bytes, prefix).filter_map(move |at| {
        let rest = bytes.get(at + prefix.len()..)?;
        let len = rest
            .iter()
            .take(VERSION_MAX)
            .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')))?;
        let text = std::str::from_utf8(rest.get(..len)?).ok()?;
        (!text.is_empty()).then_some((text, *rest.get(len)?))
    })
}

fn exports_luajit(elf: &[u8]) -> bool {
    let Ok(file) = ElfFile64::<object::LittleEndian>::parse(elf) else {
        return false;
    };
    file.dynamic_symbols().chain(file.symbols()).any(|symbol| {
        symbol.is_definition()
            && symbol
                .name_bytes()
                .is_ok_and(|name| name.starts_with(b"luaJIT_"))
    })
}
