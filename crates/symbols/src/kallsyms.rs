//! `/proc/kallsyms`: the kernel's symbols and those of its modules and BPF programs.
//!
//! Each line is `ADDRESS TYPE NAME`, followed by a tab and `[MODULE]` outside the kernel image
//! (`kernel/kallsyms.c`). Without the right to see them every address reads as zero.

use crate::demangle;
use crate::function_table::plainness;
use crate::lookup::{Lookup, NameReason};
use crate::names::{NameId, Names};
use crate::perf_map::hex;

/// Real ones hold about 10 MB.
const MAX_NAME_BYTES: usize = 256 << 20;
/// Symbols carry no sizes: a function ends at the next symbol, and where that is missing or far, after
/// this many bytes at the latest. The largest functions of a distribution kernel have about 100 KB.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// The kernel's functions, sorted.
#[derive(Debug)]
pub struct Kallsyms {
    names: Names,
    functions: Vec<KernelFunction>,
    modules: Vec<String>,
    restricted: bool,
    damaged_lines: u64,
}

#[derive(Debug, Clone, Copy)]
struct KernelFunction {
    start: u64,
    end: u64,
    name: NameId,
    module: ModuleId,
}

/// An index into `modules`; 0 is the kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ModuleId(u16);

/// One line, split.
struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    module: Option<&'a str>,
}

impl Kallsyms {
    /// Reads the whole text. Lines that are none are counted, never an error.
    pub fn parse(text: &[u8]) -> Self {
        let mut lines = Vec::new();
        let mut damaged_lines = 0;
        let mut all_zero = true;
        for line in text.split(|&byte| byte == b'\n').filter(|l| !l.is_empty()) {
            match split(line) {
                Some(line) => {
                    all_zero &= line.address == 0;
                    lines.push(line);
                }
                None => damaged_lines += 1,
            }
        }
        let mut table = Self {
            names: Names::with_limit(MAX_NAME_BYTES),
            functions: Vec::new(),
            modules: vec!["kernel".to_owned()],
            restricted: all_zero && !lines.is_empty(),
            damaged_lines,
        };
        if !table.restricted {
            lines.sort_by_key(|line| line.address);
            table.collect(&lines);
        }
        table
    }

    fn collect(&mut self, lines: &[Line<'_>]) {
        let mut module_ids = rustc_hash::FxHashMap::default();
        let mut groups = lines.chunk_by(|a, b| a.address == b.address).peekable();
        while let Some(aliases) = groups.next() {
            let next = groups.peek().and_then(|group| group.first());
            let best = aliases.iter().filter(|line| is_function(line.kind));
            let best = best.max_by_key(|line| (line.kind != b't', plainness(line.name)));
            let Some(best) = best.filter(|line| line.address != 0) else {
                continue;
            };
            let module = match best.module {
                None => ModuleId(0),
                Some(name) => *module_ids.entry(name).or_insert_with(|| {
                    // 65,536 modules are more than the kernel loads.
                    let id = u16::try_from(self.modules.len()).unwrap_or(0);
                    if id != 0 {
                        self.modules.push(name.to_owned());
                    }
                    ModuleId(id)
                }),
            };
            let Some(name) = self.names.add(best.name) else {
                return;
            };
            let furthest = best.address.saturating_add(MAX_FUNCTION_BYTES);
            self.functions.push(KernelFunction {
                start: best.address,
                end: next.map_or(furthest, |line| line.address.min(furthest)),
                name,
                module,
            });
        }
    }

    fn find(&self, address: u64) -> Option<&KernelFunction> {
        let after = self.functions.partition_point(|f| f.start <= address);
        self.functions
            .get(after.checked_sub(1)?)
            .filter(|function| address < function.end)
    }

    /// What the kernel address is called.
    pub fn lookup(&self, address: u64) -> Lookup {
        match self.find(address) {
            Some(function) => Lookup::Named {
                // The kernel's Rust functions are mangled like any other.
                function: demangle::name_of(self.names.get(function.name)),
                function_start: function.start,
                source: None,
                inlined: Vec::new(),
            },
            None if self.restricted => Lookup::unnamed(NameReason::KptrRestricted),
            None if self.functions.is_empty() => Lookup::unnamed(NameReason::NoSymbolTable),
            None => Lookup::unnamed(NameReason::BetweenSymbols),
        }
    }

    /// The module that holds the address: `kernel` for the image, `bpf` for BPF programs. `None` where
    /// no function is known.
    pub fn module(&self, address: u64) -> Option<&str> {
        let module = self.find(address)?.module;
        self.modules.get(usize::from(module.0)).map(String::as_str)
    }

    /// Every address was zero: the kernel hides them from this reader.
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Functions known.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// No function is known.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Lines that were none.
    pub fn damaged_lines(&self) -> u64 {
        self.damaged_lines
    }
}

/// `t`, `T`: code; `w`, `W`: weak, nearly always code. Data only ends the function before it.
fn is_function(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

fn split(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.splitn(3, |&byte| byte == b' ');
    let address = hex(fields.next()?)?;
    let &[kind] = fields.next()? else {
        return None;
    };
    let rest = fields.next()?;
    let (name, module) = match memchr::memchr(b'\t', rest) {
        Some(tab) => {
            let (name, module) = rest.split_at(tab);
            let module = module.get(1..)?.strip_prefix(b"[")?.strip_suffix(b"]")?;
            (name, Some(std::str::from_utf8(module).ok()?))
        }
        None => (rest, None),
    };
    (!name.is_empty()).then_some(Line {
        address,
        kind,
        name,
        module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000040 t __local
ffffffff81000040 T exported
ffffffff81000100 D a_table
ffffffffc0000000 t nf_hook\t[nf_tables]
ffffffffc0000010 t bpf_prog_6deef7357e7b4530\t[bpf]
";

    fn shown(table: &Kallsyms, address: u64) -> String {
        table.lookup(address).label("?", address)
    }

    #[test]
    fn functions_end_at_the_next_symbol_of_any_kind() {
        let table = Kallsyms::parse(TEXT);
        assert_eq!(shown(&table, 0xffff_ffff_8100_003f), "startup_64");
        assert_eq!(shown(&table, 0xffff_ffff_8100_0040), "exported");
        assert_eq!(shown(&table, 0xffff_ffff_8100_00ff), "exported");
        let data = table.lookup(0xffff_ffff_8100_0100);
        assert_eq!(data.reason(), Some(NameReason::BetweenSymbols));
    }

    #[test]
    fn modules_and_bpf_programs_are_told_apart() {
        let table = Kallsyms::parse(TEXT);
        assert_eq!(table.module(0xffff_ffff_8100_0001), Some("kernel"));
        assert_eq!(table.module(0xffff_ffff_c000_0001), Some("nf_tables"));
        assert_eq!(table.module(0xffff_ffff_c000_0011), Some("bpf"));
        assert_eq!(
            shown(&table, 0xffff_ffff_c000_0011),
            "bpf_prog_6deef7357e7b4530"
        );
        assert_eq!(table.module(0xffff_ffff_c010_0011), None);
    }

    #[test]
    fn hidden_addresses_are_the_reason_not_a_wrong_name() {
        let table = Kallsyms::parse(b"0000000000000000 T _text\n0000000000000000 t f\t[m]\n");
        assert!(table.is_restricted());
        assert_eq!(table.lookup(0).reason(), Some(NameReason::KptrRestricted));
        let anywhere = table.lookup(0xffff_ffff_8100_0000);
        assert_eq!(anywhere.reason(), Some(NameReason::KptrRestricted));
    }

    #[test]
    fn hostile_lines_are_counted_and_the_rest_is_read() {
        let table =
            Kallsyms::parse(b"x\n12 TT a\n12 T\n12 T \n12 T a\tb\n10 T good\n\xff\xff T x\n");
        assert_eq!(table.damaged_lines(), 6);
        assert_eq!(shown(&table, 0x11), "good");
    }

    #[test]
    fn an_empty_text_has_no_symbols_rather_than_hidden_ones() {
        let table = Kallsyms::parse(b"");
        assert!(!table.is_restricted());
        assert_eq!(table.lookup(1).reason(), Some(NameReason::NoSymbolTable));
    }
}
