//! Names as people read them: Rust's two mangling schemes and the Itanium C++ one.
//!
//! Mangled names refer back to their own parts, so a short hostile one can expand without end:
//! input length, recursion and output length are all bounded, and a name beyond a bound is shown
//! as it is stored.

use std::fmt::{self, Write};

use crate::lookup::Name;

/// Mangled names longer than this are not demangled.
const MAX_MANGLED_BYTES: usize = 32 * 1024;
/// A demangled name longer than this is refused, not cut: half a template is misleading.
const MAX_DEMANGLED_BYTES: usize = 32 * 1024;
/// Nesting that cpp_demangle may descend, in parsing and in printing.
const MAX_NESTING: u32 = 96;

/// The name of an ELF symbol: without its version, demangled.
pub(crate) fn symbol_name(raw: &[u8]) -> Name {
    let raw = text(raw);
    let unversioned = without_version(&raw);
    let display = demangled(unversioned).unwrap_or_else(|| unversioned.to_owned());
    Name { display, raw }
}

/// Any other name, demangled where it is mangled. An `@` is part of it: JavaScript's name
/// their file, `/app/node_modules/@scope/x.js`.
pub(crate) fn name_of(raw: &[u8]) -> Name {
    let raw = text(raw);
    let display = demangled(&raw).unwrap_or_else(|| raw.clone());
    Name { display, raw }
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw.get(..Name::MAX_BYTES).unwrap_or(raw)).into_owned()
}

/// Cuts `memcpy@@GLIBC_2.14` to `memcpy`. A leading `@` is part of the name.
fn without_version(name: &str) -> &str {
    match name.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) if name.len() > at + 1 => name.get(..at).unwrap_or(name),
        _ => name,
    }
}

/// The readable form, or `None` where the name is not mangled or breaks a bound.
fn demangled(mangled: &str) -> Option<String> {
    if mangled.len() > MAX_MANGLED_BYTES {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(mangled) {
        let mut out = Bounded::default();
        // The alternate form leaves out the hash.
        return write!(out, "{rust:#}").is_ok().then_some(out.text);
    }
    // GCC's clones of one function: `_Z3foov.constprop.0`, `_Z3foov.cold`.
    if !mangled.starts_with("_Z") && !mangled.starts_with("__Z") {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(MAX_NESTING);
    let print = cpp_demangle::DemangleOptions::new().recursion_limit(MAX_NESTING);
    let symbol = cpp_demangle::Symbol::new_with_options(mangled, &parse).ok()?;
    let mut out = Bounded::default();
    symbol
        .structured_demangle(&mut out, &print)
        .is_ok()
        .then_some(out.text)
}

/// Text that refuses to grow beyond [`MAX_DEMANGLED_BYTES`].
#[derive(Default)]
struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() > MAX_DEMANGLED_BYTES {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rust_schemes_and_cpp_are_read_and_the_raw_name_is_kept() {
        // From RFC 2603, the rustc-demangle documentation and c++filt.
        for (raw, display) in [
            ("_RNvC7mycrate3foo", "mycrate::foo"),
            ("_ZN4test4main17h0123456789abcdefE", "test::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("malloc", "malloc"),
            ("main.main", "main.main"),
        ] {
            let name = name_of(raw.as_bytes());
            assert_eq!(name.display, display);
            assert_eq!(name.raw, raw);
        }
    }

    #[test]
    fn a_symbol_version_is_cut_from_the_shown_name_only() {
        assert_eq!(symbol_name(b"memcpy@@GLIBC_2.14").display, "memcpy");
        assert_eq!(symbol_name(b"memcpy@GLIBC_2.2.5").display, "memcpy");
        assert_eq!(symbol_name(b"memcpy@@GLIBC_2.14").raw, "memcpy@@GLIBC_2.14");
        assert_eq!(symbol_name(b"@odd").display, "@odd");
        assert_eq!(symbol_name(b"odd@").display, "odd@");
    }

    #[test]
    fn names_from_elsewhere_keep_their_at_signs() {
        let name = "JS:*f /app/node_modules/@scope/pkg/index.js:10:3";
        assert_eq!(name_of(name.as_bytes()).display, name);
    }

    #[test]
    fn a_name_that_expands_without_end_is_shown_as_stored() {
        // Each S_ repeats everything before it: the printed size doubles with every level.
        let mut bomb = String::from("_Z1fI");
        for _ in 0..3000 {
            bomb.push_str("S_IS_S_");
        }
        let name = name_of(bomb.as_bytes());
        assert!(name.display.len() <= Name::MAX_BYTES);
        assert_eq!(name_of("_ZN".repeat(9000).as_bytes()).display.len(), 27000);
    }

    #[test]
    fn bytes_that_are_not_utf8_become_replacement_characters() {
        assert_eq!(name_of(b"a\xffb").display, "a\u{fffd}b");
    }
}
