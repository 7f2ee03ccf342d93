//! Files made to hurt: each must cost little and name nothing wrongly.

mod independent;

use std::time::{Duration, Instant};

use independent::{Tool, compile};
use throughline_symbols::{DebugInfo, ElfError, ModuleSymbols, NameReason, Options};

const C: &str = "__attribute__((noinline)) int shown(int x) { return x * 7; }\nint main(int c, char **v) { return shown(c); }\n";

/// Generous against a busy machine; the attacks need minutes or more without their bounds.
const SOON: Duration = Duration::from_secs(60);

fn read(bytes: Vec<u8>) -> Result<ModuleSymbols, ElfError> {
    ModuleSymbols::parse(bytes.into(), &Options::default())
}

#[test]
fn what_is_no_module_says_what_it_is() {
    assert_eq!(read(Vec::new()).unwrap_err(), ElfError::NotElf);
    assert_eq!(
        read(b"#!/bin/sh\n# and more text than a header".to_vec()).unwrap_err(),
        ElfError::NotElf
    );
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x01\x01");
    assert_eq!(
        read(header.clone()).unwrap_err().name_reason(),
        NameReason::UnsupportedElf
    );
    header[4..6].copy_from_slice(&[2, 2]);
    let big = read(header.clone()).unwrap_err();
    assert_eq!(big.to_string(), "unsupported ELF file: big endian");
    header.truncate(20);
    header[4..6].copy_from_slice(&[2, 1]);
    assert_eq!(read(header).unwrap_err().name_reason(), NameReason::Damaged);
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_nameless_never_a_panic() {
    let Some(program) = compile("cc", "c", C, &["-O1", "-g"]) else {
        return;
    };
    let whole = std::fs::read(program.path()).unwrap();
    let main = parse_start(program.path());
    for length in (0..whole.len()).step_by(61) {
        if let Ok(module) = read(whole[..length].to_vec()) {
            module.lookup(main);
            module.coverage(None);
        }
    }
}

fn parse_start(path: &str) -> u64 {
    let nm = Tool("nm").lines(&["-S", path]);
    nm.iter()
        .filter_map(|line| independent::nm_line(line))
        .find(|(.., name)| *name == "main")
        .unwrap()
        .0
}

/// An ELF file: `sections` are (type, flags, address, offset, size, link) over `body`, which
/// follows the header.
fn elf(body: &[u8], sections: &[[u64; 6]]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0, 0, 64 + body.len() as u64] {
        file.extend_from_slice(&u64::to_le_bytes(word));
    }
    file.extend_from_slice(&[0; 4]);
    // More sections than a half-word holds are counted in the first header.
    let count = sections.len() as u64 + 1;
    let halves = [
        64,
        56,
        0,
        64,
        if count < 0xff00 { count as u16 } else { 0 },
        0,
    ];
    for half in halves {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(body);
    let mut header = |words: [u64; 6], name: u32| {
        let [kind, flags, address, offset, size, link] = words;
        file.extend_from_slice(&name.to_le_bytes());
        file.extend_from_slice(&(kind as u32).to_le_bytes());
        for word in [flags, address, offset, size] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&(link as u32).to_le_bytes());
        file.extend_from_slice(&[0; 20]);
    };
    header([0, 0, 0, 0, count, 0], 0);
    for words in sections {
        // The only name there is belongs to the symbol table.
        header(*words, u32::from(words[0] == 2));
    }
    file
}

#[test]
fn a_hundred_thousand_sections_that_are_all_the_whole_file_cost_little() {
    let body = vec![b'a'; 4 << 20];
    let size = body.len() as u64;
    let sections: Vec<[u64; 6]> = (0..100_000).map(|i| [7, 6, i, 64, size, 1]).collect();
    let file = elf(&body, &sections);
    let started = Instant::now();
    let module = read(file).unwrap();
    module.lookup(77);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn names_without_an_end_do_not_cost_their_length_for_each_symbol() {
    // 200,000 symbols at one address, each naming the start of a text of 4 MiB without a NUL.
    let mut body = vec![b'a'; 4 << 20];
    let strings = body.len() as u64;
    for index in 0..200_000u32 {
        body.extend_from_slice(&(1 + index).to_le_bytes());
        body.extend_from_slice(&[0x12, 0, 2, 0]);
        body.extend_from_slice(&0x1000u64.to_le_bytes());
        body.extend_from_slice(&0u64.to_le_bytes());
    }
    // The name `.symtab` is read from section 0, which is empty: name them through the text.
    let symbols = body.len() as u64 - strings;
    body.splice(0..9, *b"\0.symtab\0");
    let sections = [
        [3, 0, 0, 64, strings, 0],
        [1, 6, 0x1000, 64, 0x1000, 0],
        [2, 0, 0, 64 + strings, symbols, 1],
    ];
    let mut file = elf(&body, &sections);
    // Section names come from section 1.
    file[62] = 1;
    let started = Instant::now();
    let module = read(file).unwrap();
    assert_eq!(module.table_sizes().symtab, 200_000);
    let label = module.lookup(0x1000).label("?", 0x1000);
    assert!(label.len() <= 64 * 1024);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn damaged_debug_information_costs_the_lines_and_not_the_names() {
    let Some(program) = compile("cc", "c", C, &["-O1", "-g"]) else {
        return;
    };
    let debug_info = Tool("readelf").lines(&["-SW", program.path()]);
    let line = debug_info
        .iter()
        .find(|l| l.contains(" .debug_info "))
        .unwrap();
    let fields: Vec<&str> = line
        .split(".debug_info")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    let [offset, size] = [fields[2], fields[3]].map(|hex| usize::from_str_radix(hex, 16).unwrap());
    let mut file = std::fs::read(program.path()).unwrap();
    file[offset..offset + size].fill(0xff);
    let module = read(file).unwrap();
    let main = parse_start(program.path());
    assert_eq!(module.lookup(main).label("?", main), "main");
    assert_ne!(module.debug_info(), DebugInfo::NotReadYet);
}

#[test]
fn a_compressed_section_that_claims_more_than_is_allowed_is_refused() {
    let Some(program) = compile("cc", "c", C, &["-O1", "-g", "-gz=zlib"]) else {
        return;
    };
    let mut file = std::fs::read(program.path()).unwrap();
    let sections = Tool("readelf").lines(&["-SW", program.path()]);
    let line = sections
        .iter()
        .find(|l| l.contains(" .debug_info "))
        .unwrap();
    let field = line
        .split(".debug_info")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .nth(2)
        .unwrap();
    let offset = usize::from_str_radix(field, 16).unwrap();
    // Elf64_Chdr: type u32, reserved u32, size u64.
    file[offset + 8..offset + 16].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let module = read(file).unwrap();
    let main = parse_start(program.path());
    assert_eq!(module.lookup(main).label("?", main), "main");
    assert_eq!(module.debug_info(), DebugInfo::Damaged);
}

#[test]
fn a_mini_symbol_table_that_is_no_xz_is_told_and_the_exports_stay() {
    let Some(program) = compile("cc", "c", C, &["-O1", "-rdynamic"]) else {
        return;
    };
    let noise = program.sibling("noise");
    std::fs::write(&noise, b"not xz at all").unwrap();
    let (mini, main) = (program.sibling("mini"), parse_start(program.path()));
    Tool("objcopy").lines(&[
        "-S",
        &format!("--add-section=.gnu_debugdata={noise}"),
        program.path(),
        &mini,
    ]);
    let module = independent::parse(&mini);
    assert_eq!(module.damaged_tables(), [".gnu_debugdata"]);
    assert_eq!(module.lookup(main).label("?", main), "main");
}

#[test]
fn a_mini_symbol_table_names_what_is_not_exported() {
    let Some(program) = compile("cc", "c", C, &["-O1"]) else {
        return;
    };
    if !Tool("xz").is_installed() {
        return;
    }
    let [table, packed, mini] = ["table", "table.xz", "mini"].map(|name| program.sibling(name));
    Tool("objcopy").lines(&["--only-keep-debug", program.path(), &table]);
    Tool("xz").lines(&["-k", &table]);
    Tool("objcopy").lines(&[
        "-S",
        &format!("--add-section=.gnu_debugdata={packed}"),
        program.path(),
        &mini,
    ]);
    let module = independent::parse(&mini);
    let main = parse_start(program.path());
    assert_eq!(module.table_sizes().symtab, 0);
    assert!(module.table_sizes().mini_debug_info > 0);
    assert_eq!(module.lookup(main).label("?", main), "main");
    assert_eq!(module.coverage(None).advice, None);
}
