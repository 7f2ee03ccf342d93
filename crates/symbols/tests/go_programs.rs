//! Go programs, stripped and not, against `go tool nm` and `go tool addr2line` of the same toolchain.
//!
//! Toolchains: `go` on the PATH, and those listed in `THROUGHLINE_GO` (paths separated by colons).

mod independent;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use independent::{Tool, parse, section};
use throughline_symbols::{GoFrame, Lookup, NameReason};

const PROGRAM: &str = r#"package main

import (
	"fmt"
	"os"
)

type Shape interface{ Area() float64 }
type Square struct{ side float64 }

//go:noinline
func (s *Square) Area() float64 { return s.side * s.side }

//go:noinline
func leaf(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += i * i
	}
	return sum
}

//go:noinline
func Map[T any](xs []T, f func(T) T) []T {
	out := make([]T, 0, len(xs))
	for _, x := range xs {
		out = append(out, f(x))
	}
	return out
}

func main() {
	var s Shape = &Square{float64(len(os.Args))}
	fmt.Println(s.Area(), leaf(10), Map([]int{1, 2}, func(x int) int { return x + leaf(x) }))
}
"#;

fn toolchains() -> Vec<String> {
    let mut found = Vec::new();
    if Command::new("go").arg("version").output().is_ok() {
        found.push("go".to_owned());
    }
    let more = std::env::var("THROUGHLINE_GO").unwrap_or_default();
    found.extend(
        more.split(':')
            .filter(|path| !path.is_empty())
            .map(str::to_owned),
    );
    if found.is_empty() {
        eprintln!("SKIPPED: go: not installed");
    }
    found
}

struct Build<'a> {
    go: &'a str,
    directory: &'a Path,
}

impl Build<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.go);
        command
            .current_dir(self.directory)
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env("GO111MODULE", "off")
            .env("GOCACHE", "/tmp/throughline-go-cache")
            .env_remove("GOROOT");
        command
    }

    /// The program, built with `flags`; `None` when this toolchain cannot.
    fn program(&self, name: &str, flags: &[&str]) -> Option<String> {
        let output = self
            .command()
            .args(["build", "-o", name])
            .args(flags)
            .arg("program.go")
            .output()
            .unwrap();
        if !output.status.success() {
            eprintln!(
                "SKIPPED: {} build {flags:?}: {}",
                self.go,
                String::from_utf8_lossy(&output.stderr)
            );
            return None;
        }
        Some(self.directory.join(name).to_str().unwrap().to_owned())
    }

    /// (start, size, name) of functions in .text, by `go tool nm`.
    fn functions(&self, program: &str) -> Vec<(u64, u64, String)> {
        let output = self
            .command()
            .args(["tool", "nm", "-size", "-n", program])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let start = u64::from_str_radix(fields.next()?, 16).ok()?;
                let size = fields.next()?.parse().ok()?;
                let kind = fields.next()?;
                let name = fields.collect::<Vec<_>>().join(" ");
                (kind.eq_ignore_ascii_case("t") && size > 0).then_some((start, size, name))
            })
            .collect()
    }

    /// (function, file:line) of addresses, by `go tool addr2line`.
    fn lines(&self, program: &str, addresses: &[u64]) -> Vec<(String, String)> {
        let mut child = self
            .command()
            .args(["tool", "addr2line", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let text: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines
            .chunks_exact(2)
            .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
            .collect()
    }
}

fn with_each_toolchain(test: impl Fn(&Build<'_>)) {
    for go in toolchains() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("program.go"), PROGRAM).unwrap();
        test(&Build {
            go: &go,
            directory: directory.path(),
        });
    }
}

/// Compares a stripped copy with what the toolchain says about the whole program.
fn assert_same_names(build: &Build<'_>, whole: &str, stripped: &str) {
    let functions = build.functions(whole);
    let module = parse(stripped);
    assert!(
        module.table_sizes().go > 1000,
        "{stripped}: {:?}",
        module.table_sizes()
    );
    assert_eq!(module.table_sizes().symtab, 0);
    let (mut compared, mut other) = (0, Vec::new());
    for (start, size, name) in &functions {
        // Markers of sections, and C code of the C library's start files.
        if name.starts_with("runtime.etext") || name == "runtime.text" || !name.contains('.') {
            continue;
        }
        match module.lookup(start + size / 2) {
            // The symbol table calls wrappers of the assembler's calling convention `f.abi0`.
            Lookup::Named { function, .. }
                if function.raw == *name
                    || name.strip_suffix(".abi0") == Some(&function.raw)
                    || name.contains("[go.shape.") =>
            {
                compared += 1
            }
            Lookup::Named {
                function,
                function_start,
                ..
            } => {
                other.push(format!(
                    "{name} at {start:#x}: {} at {function_start:#x}",
                    function.raw
                ));
            }
            Lookup::Unnamed { reason, .. } => other.push(format!("{name}: {reason}")),
        }
    }
    // Padding functions and data in text differ between releases by a handful.
    assert!(
        compared > 1000 && other.len() * 200 < compared,
        "{compared} same, {other:#?}"
    );
}

#[test]
fn a_stripped_program_keeps_every_name() {
    with_each_toolchain(|build| {
        for flags in [
            &[][..],
            &["-buildmode=pie"],
            &["-ldflags=-linkmode=external"],
            &["-buildmode=pie", "-ldflags=-linkmode=external"],
        ] {
            let Some(whole) = build.program("whole", flags) else {
                continue;
            };
            let stripped = format!("{whole}.stripped");
            Tool("strip").lines(&["-s", "-o", &stripped, &whole]);
            assert_same_names(build, &whole, &stripped);
        }
    });
}

#[test]
fn a_program_that_the_linker_stripped_keeps_every_name() {
    with_each_toolchain(|build| {
        let Some(whole) = build.program("whole", &[]) else {
            return;
        };
        let Some(stripped) = build.program("stripped", &["-ldflags=-s -w"]) else {
            return;
        };
        assert_eq!(section(&whole, ".text"), section(&stripped, ".text"));
        assert_same_names(build, &whole, &stripped);
    });
}

#[test]
fn lines_come_from_the_table_when_debug_information_is_gone() {
    with_each_toolchain(|build| {
        let Some(whole) = build.program("whole", &[]) else {
            return;
        };
        let stripped = format!("{whole}.stripped");
        Tool("strip").lines(&["-s", "-o", &stripped, &whole]);
        let module = parse(&stripped);
        let text = section(&whole, ".text");
        let addresses: Vec<u64> = text.step_by(997).collect();
        let expected = build.lines(&whole, &addresses);
        assert_eq!(expected.len(), addresses.len());
        let mut compared = 0;
        for (address, (function, line)) in addresses.iter().zip(&expected) {
            let Lookup::Named {
                source,
                function: found,
                ..
            } = module.lookup(*address)
            else {
                continue;
            };
            if function == "?" {
                continue;
            }
            let found_line = match &source {
                Some(source) => format!("{}:{}", source.file, source.line.unwrap_or(0)),
                None => "?:0".to_owned(),
            };
            let line = if line == ":-1" { "?:0" } else { line };
            assert_eq!(
                &found_line, line,
                "{} ({function}) at {address:#x}",
                found.raw
            );
            compared += 1;
        }
        assert!(compared > 500, "{compared} of {}", addresses.len());
    });
}

/// (address, bytes from the stack pointer to above the return address), as DWARF's call frame table says.
fn call_frame_rows(program: &str) -> Vec<(u64, u64)> {
    Tool("readelf")
        .lines(&["--debug-dump=frames-interp", program])
        .iter()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let bytes = fields.next()?.strip_prefix("rsp+")?.parse().ok()?;
            // The common entry has address 0.
            (address != 0).then_some((address, bytes))
        })
        .collect()
}

#[test]
fn frames_of_a_stripped_program_are_those_of_the_call_frame_table() {
    with_each_toolchain(|build| {
        let Some(whole) = build.program("whole", &[]) else {
            return;
        };
        let stripped = format!("{whole}.stripped");
        Tool("strip").lines(&["-s", "-o", &stripped, &whole]);
        let module = parse(&stripped);
        let functions = build.functions(&whole);
        let rows = call_frame_rows(&whole);
        assert!(rows.len() > 1000, "{} rows", rows.len());
        for (address, bytes) in rows {
            let Some(frame) = module.go_frame(address) else {
                let function = functions.iter().rfind(|(start, ..)| *start <= address);
                panic!("no frame at {address:#x} of {function:?}");
            };
            if let GoFrame::Caller { bytes: found } = frame {
                assert_eq!(found + 8, bytes, "at {address:#x}");
            }
        }
        let frame_of = |name: &str| {
            let (start, ..) = functions
                .iter()
                .find(|(.., found)| found == name || *found == format!("{name}.abi0"))
                .expect("the runtime has it");
            module.go_frame(*start)
        };
        for entry in ["runtime.goexit", "runtime.mstart"] {
            assert_eq!(frame_of(entry), Some(GoFrame::Entry));
        }
        assert_eq!(frame_of("runtime.systemstack"), Some(GoFrame::OtherStack));
        for inner in ["runtime.main", "main.main", "main.leaf"] {
            assert_eq!(frame_of(inner), Some(GoFrame::Caller { bytes: 0 }));
        }
    });
}

#[test]
fn a_program_without_the_table_says_that_it_has_no_symbols() {
    with_each_toolchain(|build| {
        let Some(whole) = build.program("whole", &[]) else {
            return;
        };
        let bare = format!("{whole}.bare");
        Tool("objcopy").lines(&["-S", "--remove-section=.gopclntab", &whole, &bare]);
        let module = parse(&bare);
        let text = section(&whole, ".text");
        let reason = module.lookup(text.start + 100).reason();
        assert_eq!(reason, Some(NameReason::NoSymbolTable));
    });
}

/// Tables of the layouts that no toolchain here writes, made by hand: `main.a` has 20 bytes of code, of
/// which 8 are line 4 of `/a.go` and the rest line 6, and so has `main.b` after it.
#[test]
fn hand_made_tables_of_every_layout_are_read() {
    const TEXT: u64 = 0x40_1000;
    let code = "void _start(void) { for (;;) __asm__ volatile(\".skip 64, 0x90\"); }";
    let flags = [
        "-nostdlib",
        "-static",
        "-no-pie",
        "-fno-pie",
        "-s",
        "-Wl,-Ttext=0x401000",
    ];
    let Some(program) = independent::compile("cc", "c", code, &flags) else {
        return;
    };
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/symbols_go");
    for magic in ["fffffff0", "fffffff1", "fffffffa", "fffffffb"] {
        let table = tables.join(magic);
        let section = format!("--add-section=.gopclntab={}", table.display());
        let whole = program.sibling(magic);
        Tool("objcopy").lines(&[&section, program.path(), &whole]);
        let module = parse(&whole);
        assert_eq!(module.table_sizes().go, 2, "{magic}");
        for (offset, name, line) in [
            (0, "main.a", 4),
            (7, "main.a", 4),
            (8, "main.a", 6),
            (20, "main.b", 4),
            (39, "main.b", 6),
        ] {
            let Lookup::Named {
                function,
                function_start,
                source,
                ..
            } = module.lookup(TEXT + offset)
            else {
                panic!("{magic}: {offset} has no name");
            };
            assert_eq!(function.raw, name, "{magic} at {offset}");
            assert_eq!(
                function_start,
                if name == "main.a" { TEXT } else { TEXT + 20 }
            );
            let source = source.unwrap_or_else(|| panic!("{magic}: {offset} has no line"));
            assert_eq!(
                (&*source.file, source.line),
                ("/a.go", Some(line)),
                "{magic} at {offset}"
            );
        }
        assert!(module.lookup(TEXT + 40).reason().is_some(), "{magic}");
    }
}
