//! Inlined calls and lines, against binutils' `addr2line -i -f`.

mod independent;

use independent::{Program, Tool, compile, parse, section};
use throughline_symbols::{DebugInfo, Lookup, ModuleSymbols};

const C: &str = r#"
#include <stdlib.h>
static inline __attribute__((always_inline)) int innermost(int x) {
    volatile int y = x;
    return y * 3;
}
static inline __attribute__((always_inline)) int middle(int x) {
    return innermost(x + 1) + innermost(x + 2);
}
__attribute__((noinline)) int outer(int x) {
    return middle(x) + 5;
}
int main(int argc, char **argv) { return outer(argc) + atoi(argv[0]); }
"#;

const CPP: &str = r#"
#include <vector>
namespace shop {
struct Cart {
    std::vector<int> items;
    __attribute__((always_inline)) inline void add(int x) { volatile int y = x; int z = y; items.push_back(z); }
    __attribute__((noinline)) int total() const { int t = 0; for (int i : items) t += i; return t; }
};
}
int main(int argc, char **) { shop::Cart c; c.add(argc); c.add(2); return c.total(); }
"#;

const RUST: &str = r#"
#[inline(always)]
fn innermost(x: u64) -> u64 { std::hint::black_box(x) * 3 }
#[inline(always)]
fn middle(x: u64) -> u64 { innermost(x + 1) + innermost(x + 2) }
#[inline(never)]
fn outer(x: u64) -> u64 { middle(x) + 5 }
fn main() { println!("{}", outer(std::env::args().count() as u64)); }
"#;

/// Frames of addr2line, innermost first: (function as stored, file:line).
fn addr2line(program: &str, address: u64) -> Vec<(String, String)> {
    let hex = format!("{address:#x}");
    let lines = Tool("addr2line").lines(&["-i", "-f", "-e", program, &hex]);
    lines
        .chunks_exact(2)
        .map(|pair| {
            let line = pair[1].split(" (").next().unwrap();
            (pair[0].clone(), line.to_owned())
        })
        .collect()
}

fn shown(source: Option<&throughline_symbols::SourceLine>) -> String {
    match source {
        Some(source) => match source.line {
            Some(line) => format!("{}:{line}", source.file),
            None => format!("{}:?", source.file),
        },
        None => "??:0".to_owned(),
    }
}

/// Our frames in the same shape.
fn ours(module: &ModuleSymbols, address: u64) -> Vec<(String, String)> {
    match module.lookup(address) {
        Lookup::Named {
            function,
            source,
            inlined,
            ..
        } => inlined
            .into_iter()
            .map(|call| (call.function.raw, shown(call.source.as_ref())))
            .chain([(function.raw, shown(source.as_ref()))])
            .collect(),
        Lookup::Unnamed { .. } => Vec::new(),
    }
}

/// `./a/../b.c:3` and `b.c:3` name one line.
fn file_name(line: &str) -> &str {
    line.rsplit('/').next().unwrap()
}

fn assert_as_addr2line_says(program: &Program, functions: &[&str]) {
    let module = parse(program.path());
    let nm = Tool("nm").lines(&["-S", program.path()]);
    let (mut compared, mut inlined) = (0, 0);
    for (start, size, _, name) in nm.iter().filter_map(|line| independent::nm_line(line)) {
        if !functions.iter().any(|function| name.contains(function)) {
            continue;
        }
        for address in start..start + size {
            let expected = addr2line(program.path(), address);
            let found = ours(&module, address);
            let lines = |frames: &[(String, String)]| -> Vec<String> {
                frames
                    .iter()
                    .map(|(_, line)| file_name(line).to_owned())
                    .collect()
            };
            let context = format!("{address:#x}: {found:?} for {expected:?}");
            assert_eq!(lines(&found), lines(&expected), "{context}");
            for (ours, theirs) in found.iter().zip(&expected) {
                // The symbol of a part that the compiler moved away says so; DWARF does not.
                let whole = ours.0.strip_suffix(".cold").unwrap_or(&ours.0);
                assert_eq!(whole, theirs.0, "{context}");
            }
            compared += 1;
            inlined += usize::from(found.len() > 1);
        }
    }
    assert!(
        compared > 20 && inlined > 5,
        "{compared} addresses, {inlined} with inlined calls"
    );
    assert_eq!(module.debug_info(), DebugInfo::Readable);
}

#[test]
fn inlined_calls_of_c_are_those_of_addr2line() {
    for flags in [
        &["-O2", "-g"][..],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-g", "-gz"],
    ] {
        let Some(program) = compile("cc", "c", C, flags) else {
            return;
        };
        assert_as_addr2line_says(&program, &["outer", "main"]);
    }
}

#[test]
fn inlined_calls_of_cpp_are_those_of_addr2line() {
    let Some(program) = compile("c++", "cc", CPP, &["-O2", "-g"]) else {
        return;
    };
    assert_as_addr2line_says(&program, &["main"]);
    let module = parse(program.path());
    let nm = Tool("nm").lines(&["-S", "-C", program.path()]);
    let total = nm
        .iter()
        .find(|line| line.contains("shop::Cart::total()"))
        .unwrap();
    let start = u64::from_str_radix(total.split(' ').next().unwrap(), 16).unwrap();
    assert_eq!(
        module.lookup(start).label("?", start),
        "shop::Cart::total() const"
    );
}

#[test]
fn inlined_calls_of_rust_are_those_of_addr2line() {
    for flags in [
        &["-O", "-g"][..],
        &["-O", "-g", "-C", "symbol-mangling-version=v0"],
    ] {
        let Some(program) = compile("rustc", "rs", RUST, flags) else {
            return;
        };
        assert_as_addr2line_says(&program, &["5outer"]);
        let module = parse(program.path());
        let nm = Tool("nm").lines(&["-S", program.path()]);
        let found = nm
            .iter()
            .filter_map(|line| independent::nm_line(line))
            .find(|(.., name)| name.contains("5outer"))
            .unwrap();
        assert_eq!(module.lookup(found.0).label("?", found.0), "program::outer");
    }
}

#[test]
fn a_debug_file_of_the_same_build_names_and_one_of_another_build_is_refused() {
    let Some(program) = compile("cc", "c", C, &["-O2", "-g"]) else {
        return;
    };
    let Some(other) = compile(
        "cc",
        "c",
        CPP.trim_start_matches(|_| true),
        &["-shared", "-g"],
    ) else {
        return;
    };
    let (debug, stripped) = (program.sibling("debug"), program.sibling("stripped"));
    Tool("objcopy").lines(&["--only-keep-debug", program.path(), &debug]);
    Tool("strip").lines(&["-s", "-o", &stripped, program.path()]);
    let mut module = parse(&stripped);
    let outer = Tool("nm")
        .lines(&["-S", program.path()])
        .iter()
        .filter_map(|line| {
            independent::nm_line(line).map(|(start, size, _, name)| (start, size, name.to_owned()))
        })
        .find(|(.., name)| name == "outer")
        .unwrap();
    assert!(module.lookup(outer.0).reason().is_some());
    assert!(
        module
            .add_debug_file(independent::bytes(other.path()))
            .is_err()
    );
    module.add_debug_file(independent::bytes(&debug)).unwrap();
    let frames = ours(&module, outer.0 + 8);
    let expected = addr2line(program.path(), outer.0 + 8);
    assert_eq!(
        frames.iter().map(|f| &f.0).collect::<Vec<_>>(),
        expected.iter().map(|f| &f.0).collect::<Vec<_>>()
    );
}

#[test]
fn units_are_dropped_and_read_again_beyond_the_bound_with_the_same_answers() {
    let Some(program) = compile("rustc", "rs", RUST, &["-O", "-g"]) else {
        return;
    };
    let whole = parse(program.path());
    let mut options = throughline_symbols::Options::default();
    options.max_kept_debug_bytes = 0;
    let forgetful = ModuleSymbols::parse(independent::bytes(program.path()), &options).unwrap();
    for address in section(program.path(), ".text").step_by(4099) {
        assert_eq!(whole.lookup(address), forgetful.lookup(address));
    }
}

#[test]
fn modules_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ModuleSymbols>();
}
