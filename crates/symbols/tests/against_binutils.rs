//! Names are compared with what binutils prints for the same files: `nm -S`, `objdump -d`,
//! `readelf`.

mod independent;

use independent::{Tool, compile, elf_files_of_this_machine, parse};
use throughline_symbols::{Lookup, NameReason};

const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
__attribute__((noinline)) static int hidden(int x) { return x * 7 + 1; }
__attribute__((noinline)) int shown(int x) { return hidden(x) + (int)strlen(getenv("HOME")); }
int alias_of_shown(int) __attribute__((alias("shown")));
int main(int argc, char **argv) { printf("%d\n", shown(argc)); return atoi(argv[0]) + (free(argv[1]), 0); }
"#;

#[test]
fn every_sized_function_of_nm_has_its_name_at_its_first_and_last_byte() {
    let Some(program) = compile("cc", "c", PROGRAM, &["-O1"]) else {
        return;
    };
    let nm = Tool("nm").lines(&["-S", program.path()]);
    let module = parse(program.path());
    let mut compared = 0;
    for (start, size, kind, name) in nm.iter().filter_map(|line| independent::nm_line(line)) {
        if !matches!(kind, 't' | 'T' | 'w' | 'W') || size == 0 {
            continue;
        }
        for address in [start, start + size - 1] {
            let Lookup::Named {
                function,
                function_start,
                ..
            } = module.lookup(address)
            else {
                panic!("{name} at {address:#x} has no name");
            };
            assert_eq!(function_start, start);
            let same =
                function.display == name || (name.contains("shown") && function.display == "shown");
            assert!(same, "{} for {name}", function.display);
        }
        compared += 1;
    }
    assert!(compared >= 4, "only {compared} functions compared");
}

#[test]
fn stubs_are_called_what_objdump_calls_them() {
    for flags in [
        &["-O1"][..],
        &[
            "-O1",
            "-fcf-protection=full",
            "-Wl,-z,ibtplt",
            "-Wl,-z,lazy",
        ],
        &["-O1", "-fcf-protection=none", "-Wl,-z,lazy", "-no-pie"],
        &["-O1", "-fno-plt"],
    ] {
        let Some(program) = compile("cc", "c", PROGRAM, flags) else {
            return;
        };
        let module = parse(program.path());
        let listing = Tool("objdump").lines(&["-d", program.path()]);
        let mut compared = 0;
        for line in &listing {
            // 0000000000001030 <free@plt>:
            let Some((address, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <"))
            else {
                continue;
            };
            if !name.ends_with("@plt") {
                continue;
            }
            let address = u64::from_str_radix(address, 16).unwrap();
            // objdump keeps the version, `strlen@GLIBC_2.2.5@plt`, in some releases.
            let expected = format!("{}@plt", name.split('@').next().unwrap());
            let Lookup::Named { function, .. } = module.lookup(address + 4) else {
                panic!("{name} has no name with {flags:?}");
            };
            assert_eq!(function.display, expected, "with {flags:?}");
            compared += 1;
        }
        let expects_stubs = !flags.contains(&"-fno-plt");
        assert!(
            !expects_stubs || compared >= 4,
            "{compared} stubs compared with {flags:?}"
        );
    }
}

#[test]
fn a_stripped_program_groups_nameless_code_by_its_functions() {
    let Some(program) = compile("cc", "c", PROGRAM, &["-O1"]) else {
        return;
    };
    let nm = Tool("nm").lines(&["-S", program.path()]);
    let stripped = program.sibling("stripped");
    Tool("strip").lines(&["-o", &stripped, program.path()]);
    let module = parse(&stripped);
    let mut grouped = 0;
    for (start, size, _, name) in nm.iter().filter_map(|line| independent::nm_line(line)) {
        if !["hidden", "shown", "main"].contains(&name) {
            continue;
        }
        match module.lookup(start + size - 1) {
            Lookup::Unnamed {
                function_start,
                reason,
            } => {
                assert_eq!(function_start, Some(start), "{name}");
                assert_eq!(reason, NameReason::NoSymbolTable);
                grouped += 1;
            }
            named => panic!("{name}: {named:?}"),
        }
    }
    assert_eq!(grouped, 3);
}

#[test]
fn the_installed_libraries_get_the_names_that_nm_gives() {
    let mut compared = 0;
    for path in elf_files_of_this_machine() {
        let module = parse(&path);
        let nm = Tool("nm").lines(&["-D", "-S", "--without-symbol-versions", &path]);
        let symbols: Vec<_> = nm
            .iter()
            .filter_map(|line| independent::nm_line(line))
            .filter(|(_, size, kind, _)| matches!(kind, 'T' | 'W' | 'i') && *size > 0)
            .collect();
        for &(start, size, _, name) in &symbols {
            let found = module.lookup(start + size / 2);
            let Lookup::Named {
                function,
                function_start,
                ..
            } = found
            else {
                panic!("{path}: {name}: {found:?}");
            };
            let candidates: Vec<_> = symbols
                .iter()
                .filter(|(other, ..)| *other == function_start)
                .map(|(.., name)| *name)
                .collect();
            // An alias, or a function that starts inside this one.
            assert!(
                candidates.contains(&function.raw.as_str()) || function_start > start,
                "{path}: {} for {name}",
                function.raw
            );
            compared += 1;
        }
    }
    eprintln!("{compared} exported functions compared");
}

#[test]
fn no_byte_outside_the_symbols_of_a_stripped_library_gets_a_name() {
    let Some(path) = elf_files_of_this_machine()
        .into_iter()
        .find(|p| p.contains("libpcre2-8"))
    else {
        eprintln!("SKIPPED: libpcre2: not installed");
        return;
    };
    let module = parse(&path);
    let nm = Tool("nm").lines(&["-D", "-S", &path]);
    let symbols: Vec<_> = nm
        .iter()
        .filter_map(|line| independent::nm_line(line))
        .collect();
    let text = independent::section(&path, ".text");
    let (mut named, mut nameless) = (0u64, 0u64);
    for address in text.step_by(7) {
        let exported = symbols
            .iter()
            .any(|&(start, size, ..)| (start..start + size).contains(&address));
        match module.lookup(address) {
            Lookup::Named { function, .. } => {
                assert!(exported, "{address:#x} is misnamed {}", function.display);
                named += 1;
            }
            Lookup::Unnamed { reason, .. } => {
                assert!(!exported);
                assert_eq!(reason, NameReason::BetweenSymbols);
                nameless += 1;
            }
        }
    }
    assert!(
        named > 0 && nameless > named,
        "{named} named, {nameless} nameless"
    );
}

#[test]
fn the_build_id_is_the_one_that_readelf_prints() {
    for path in elf_files_of_this_machine() {
        let notes = Tool("readelf").lines(&["-n", &path]);
        let expected = notes
            .iter()
            .find_map(|l| l.trim().strip_prefix("Build ID: "));
        let found = parse(&path).build_id().map(|id| id.to_hex());
        assert_eq!(found.as_deref(), expected, "{path}");
    }
}

#[test]
fn the_vdso_of_this_process_is_read_from_its_memory() {
    use std::io::{Read, Seek, SeekFrom};
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        eprintln!("SKIPPED: vdso: not mapped");
        return;
    };
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(start)).unwrap();
    let mut image = Vec::new();
    memory.take(end - start).read_to_end(&mut image).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &image).unwrap();
    let path = file.path().to_str().unwrap();
    let module = parse(path);
    let nm = Tool("nm").lines(&["-D", "-S", path]);
    let clock = nm
        .iter()
        .filter_map(|line| independent::nm_line(line))
        .find(|(.., name)| *name == "clock_gettime")
        .unwrap();
    assert_eq!(
        module.lookup(clock.0 + clock.1 / 2).label("vdso", 0),
        "clock_gettime"
    );
}

#[test]
fn a_byte_of_the_file_has_the_address_of_the_segment_that_readelf_prints() {
    let mut compared = 0;
    for path in elf_files_of_this_machine() {
        let module = parse(&path);
        for line in Tool("readelf").lines(&["-lW", &path]) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // LOAD 0x026000 0x0000000000026000 0x0000000000026000 0x155d9d 0x155d9d R E 0x1000
            let ["LOAD", offset, address, _, size, _, "R", "E", _] = fields[..] else {
                continue;
            };
            let [offset, address, size] = [offset, address, size]
                .map(|hex| u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap());
            for into in [0, size / 2, size - 1] {
                let found = module.svma_of_file_offset(offset + into);
                assert_eq!(found, Some(address + into), "{path}");
                compared += 1;
            }
        }
        assert_eq!(module.svma_of_file_offset(u64::MAX), None);
    }
    assert!(compared > 0);
}
