//! Functions by address, with their names as offsets into the string tables of the files.
//!
//! A name covers its function and nothing else: symbol sizes are honoured, so code between two
//! exported symbols is nameless instead of misnamed. Overlaps are resolved once, when the table is
//! built, into stretches that each belong to one function; where functions nest, the one that
//! starts last wins. A look-up is one binary search.

use std::cmp::Reverse;
use std::ops::Range;

use crate::bytes::SharedBytes;

/// Where the names of one symbol table lie.
#[derive(Debug, Clone)]
pub(crate) struct Strings {
    pub bytes: SharedBytes,
    pub range: Range<usize>,
}

impl Strings {
    /// The bytes from `offset` to the next NUL, at most `max_bytes`: without the bound, many
    /// symbols that name the start of one long text cost its length each. Empty when damaged.
    fn get(&self, offset: u32, max_bytes: usize) -> &[u8] {
        let table = self.bytes.slice(&self.range).unwrap_or_default();
        let from = table.get(offset as usize..).unwrap_or_default();
        let window = from.get(..max_bytes).unwrap_or(from);
        let end = memchr::memchr(0, window).unwrap_or(window.len());
        window.get(..end).unwrap_or_default()
    }
}

/// How much of a name is looked at when aliases are compared.
const COMPARED_BYTES: usize = 512;

/// How far a symbol's name is preferred over its aliases; greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A label without a type (assembly).
    Label,
    /// A function local to its file.
    Local,
    /// A global or weak function: what its users call it.
    Global,
}

/// A symbol before aliases and overlaps are resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSymbol {
    pub address: u64,
    /// 0: unknown.
    pub size: u64,
    pub name: NameRef,
    pub rank: Rank,
}

/// A name in one of the table's string tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameRef {
    pub strings: u8,
    pub offset: u32,
}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function {
    pub start: u64,
    pub name: NameRef,
}

/// Collects symbols of several tables, then resolves them.
#[derive(Default)]
pub(crate) struct Builder {
    strings: Vec<Strings>,
    symbols: Vec<RawSymbol>,
}

impl Builder {
    /// Registers a string table. `None` beyond 256, more than a module with its debug file has.
    pub fn add_strings(&mut self, strings: Strings) -> Option<u8> {
        let index = u8::try_from(self.strings.len()).ok()?;
        self.strings.push(strings);
        Some(index)
    }

    pub fn push(&mut self, symbol: RawSymbol) {
        self.symbols.push(symbol);
    }

    pub fn reserve(&mut self, count: usize) {
        self.symbols.reserve(count);
    }

    /// Resolves aliases and overlaps. `limit_of` says where a function of unknown size that starts
    /// at an address must end at the latest (its unwinding entry, its section, 0 for "nowhere").
    pub fn build(self, limit_of: impl Fn(u64) -> u64) -> FunctionTable {
        let Self {
            strings,
            mut symbols,
        } = self;
        let name = |symbol: &RawSymbol| {
            strings
                .get(usize::from(symbol.name.strings))
                .map(|table| table.get(symbol.name.offset, COMPARED_BYTES))
                .unwrap_or_default()
        };
        symbols.sort_unstable_by_key(|symbol| symbol.address);
        let mut functions: Vec<(Function, u64)> = Vec::new();
        for aliases in symbols.chunk_by(|a, b| a.address == b.address) {
            let Some(best) = aliases
                .iter()
                .copied()
                .max_by(|a, b| preference(a, name(a)).cmp(&preference(b, name(b))))
            else {
                continue;
            };
            // One alias may state the size that another lacks.
            let size = aliases.iter().map(|symbol| symbol.size).max().unwrap_or(0);
            let function = Function {
                start: best.address,
                name: best.name,
            };
            functions.push((function, best.address.saturating_add(size)));
        }
        drop(symbols);
        drop_inner_labels(&mut functions);
        extend_unsized(&mut functions, limit_of);
        FunctionTable::resolve(strings, functions)
    }
}

/// Orders aliases: rank, then a stated size, then [`plainness`].
fn preference<'n>(symbol: &RawSymbol, name: &'n [u8]) -> (Rank, bool, Plainness<'n>) {
    (symbol.rank, symbol.size > 0, plainness(name))
}

type Plainness<'n> = (Reverse<usize>, Reverse<usize>, Reverse<&'n [u8]>);

/// Greater for the alias that people know: fewer leading underscores, then shorter, then the
/// alphabet, so that the choice does not depend on the order in the file.
pub(crate) fn plainness(name: &[u8]) -> Plainness<'_> {
    let version = memchr::memchr(b'@', name).filter(|&at| at > 0);
    let plain = name.get(..version.unwrap_or(name.len())).unwrap_or(name);
    let underscores = plain.iter().take_while(|&&byte| byte == b'_').count();
    (Reverse(underscores), Reverse(plain.len()), Reverse(plain))
}

/// Forgets symbols without size inside a sized function: they mark a place in it.
fn drop_inner_labels(functions: &mut Vec<(Function, u64)>) {
    let mut sized_until = 0;
    functions.retain(|&(function, end)| {
        let unsized_symbol = end == function.start;
        let inner_label = unsized_symbol && function.start < sized_until;
        sized_until = sized_until.max(end);
        !inner_label
    });
}

/// Gives functions of unknown size an end: the next function or `limit_of`, whichever is first.
fn extend_unsized(functions: &mut [(Function, u64)], limit_of: impl Fn(u64) -> u64) {
    let mut next_start = u64::MAX;
    for (function, end) in functions.iter_mut().rev() {
        if *end == function.start {
            *end = limit_of(function.start).min(next_start).max(*end);
        }
        next_start = function.start;
    }
}

/// Sorted stretches, each of one function or of none.
#[derive(Debug, Default)]
pub(crate) struct FunctionTable {
    strings: Vec<Strings>,
    /// First addresses of the stretches, ascending.
    starts: Vec<u64>,
    /// The function of each stretch: an index into `functions`, or [`NOBODY`].
    owners: Vec<u32>,
    functions: Vec<Function>,
}

const NOBODY: u32 = u32::MAX;

impl FunctionTable {
    /// Sweeps over functions sorted by start, each with its end.
    fn resolve(strings: Vec<Strings>, functions: Vec<(Function, u64)>) -> Self {
        let mut table = Self {
            strings,
            ..Self::default()
        };
        // Functions that cover the sweep's position, the innermost last.
        let mut open: Vec<(u64, u32)> = Vec::new();
        for (function, end) in functions {
            table.close_until(&mut open, function.start);
            // 2^32 symbols would need 96 GB of symbol table.
            let Ok(index) = u32::try_from(table.functions.len()) else {
                break;
            };
            table.functions.push(function);
            if end > function.start {
                table.begin(function.start, index);
                open.push((end, index));
            }
        }
        table.close_until(&mut open, u64::MAX);
        table.starts.shrink_to_fit();
        table.owners.shrink_to_fit();
        table.functions.shrink_to_fit();
        table
    }

    /// Ends the open functions that end at or before `position`.
    fn close_until(&mut self, open: &mut Vec<(u64, u32)>, position: u64) {
        while let Some(&(end, _)) = open.last() {
            if end > position {
                break;
            }
            open.pop();
            // Those that ended earlier, below an inner one that reached further.
            while open.last().is_some_and(|&(outer, _)| outer <= end) {
                open.pop();
            }
            let owner = open.last().map_or(NOBODY, |&(_, index)| index);
            self.begin(end, owner);
        }
    }

    /// Begins a stretch; one that begins at the same address replaces the empty one before.
    fn begin(&mut self, start: u64, owner: u32) {
        if self.starts.last() == Some(&start) {
            if let Some(last) = self.owners.last_mut() {
                *last = owner;
            }
        } else {
            self.starts.push(start);
            self.owners.push(owner);
        }
    }

    /// The function that covers `address`.
    pub fn find(&self, address: u64) -> Option<Function> {
        let after = self.starts.partition_point(|&start| start <= address);
        let owner = *self.owners.get(after.checked_sub(1)?)?;
        self.functions.get(owner as usize).copied()
    }

    /// The function that starts at `address`, whatever its size.
    pub fn starting_at(&self, address: u64) -> Option<Function> {
        let at = self
            .functions
            .binary_search_by_key(&address, |function| function.start)
            .ok()?;
        self.functions.get(at).copied()
    }

    /// The bytes of a name.
    pub fn name(&self, name: NameRef) -> &[u8] {
        self.strings
            .get(usize::from(name.strings))
            .map(|strings| strings.get(name.offset, crate::Name::MAX_BYTES))
            .unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, &str, Rank)], limit: impl Fn(u64) -> u64) -> FunctionTable {
        let mut text = Vec::new();
        let mut offsets = Vec::new();
        for (.., name, _) in symbols {
            offsets.push(u32::try_from(text.len()).unwrap());
            text.extend_from_slice(name.as_bytes());
            text.push(0);
        }
        let range = 0..text.len();
        let mut builder = Builder::default();
        let strings = builder
            .add_strings(Strings {
                bytes: text.into(),
                range,
            })
            .unwrap();
        for (&(address, size, _, rank), offset) in symbols.iter().zip(offsets) {
            builder.push(RawSymbol {
                address,
                size,
                name: NameRef { strings, offset },
                rank,
            });
        }
        builder.build(limit)
    }

    fn names(table: &FunctionTable, addresses: Range<u64>) -> String {
        addresses
            .map(|address| match table.find(address) {
                Some(function) => char::from(table.name(function.name)[0]),
                None => '.',
            })
            .collect()
    }

    #[test]
    fn code_between_sized_symbols_belongs_to_nobody() {
        let table = table(
            &[(10, 3, "a", Rank::Global), (16, 2, "b", Rank::Global)],
            |_| 100,
        );
        assert_eq!(names(&table, 8..20), "..aaa...bb..");
    }

    #[test]
    fn the_innermost_of_nested_functions_wins_and_the_outer_one_resumes() {
        let symbols = [
            (0, 10, "a", Rank::Local),
            (2, 4, "b", Rank::Local),
            (3, 1, "c", Rank::Local),
            (8, 4, "d", Rank::Local),
        ];
        assert_eq!(names(&table(&symbols, |_| 0), 0..13), "aabcbbaadddd.");
    }

    #[test]
    fn an_inner_function_that_reaches_further_hides_the_end_of_the_outer_one() {
        let symbols = [
            (0, 5, "a", Rank::Local),
            (2, 6, "b", Rank::Local),
            (3, 1, "c", Rank::Local),
        ];
        assert_eq!(names(&table(&symbols, |_| 0), 0..9), "aabcbbbb.");
    }

    #[test]
    fn a_symbol_without_size_ends_at_the_next_one_or_at_the_limit() {
        let symbols = [(0, 0, "a", Rank::Label), (4, 0, "b", Rank::Label)];
        assert_eq!(names(&table(&symbols, |_| 7), 0..9), "aaaabbb..");
        assert_eq!(
            names(&table(&symbols, |start| start + 2), 0..9),
            "aa..bb..."
        );
        assert_eq!(names(&table(&symbols, |_| 0), 0..9), ".........");
    }

    #[test]
    fn a_label_inside_a_sized_function_does_not_rename_the_rest_of_it() {
        let symbols = [(0, 9, "f", Rank::Global), (3, 0, "l", Rank::Label)];
        assert_eq!(names(&table(&symbols, |_| 20), 0..10), "fffffffff.");
    }

    #[test]
    fn of_aliases_the_global_then_plainer_then_shorter_name_is_shown() {
        let pick = |names: &[(&'static str, Rank)]| {
            let symbols: Vec<_> = names.iter().map(|&(n, rank)| (5, 1, n, rank)).collect();
            let table = table(&symbols, |_| 0);
            String::from_utf8(table.name(table.find(5).unwrap().name).to_vec()).unwrap()
        };
        use Rank::{Global, Label, Local};
        assert_eq!(
            pick(&[("__libc_malloc", Global), ("malloc", Global)]),
            "malloc"
        );
        assert_eq!(pick(&[("mal", Local), ("malloc", Global)]), "malloc");
        assert_eq!(pick(&[("x", Label), ("function", Local)]), "function");
        assert_eq!(pick(&[("read_long", Global), ("read", Global)]), "read");
        assert_eq!(pick(&[("bb", Global), ("aa", Global)]), "aa");
        assert_eq!(
            pick(&[("memcpy@@GLIBC_2.14", Global), ("memcpy_x", Global)]),
            "memcpy@@GLIBC_2.14"
        );
    }

    #[test]
    fn an_alias_without_size_takes_it_from_the_other() {
        let symbols = [(0, 0, "a", Rank::Global), (0, 4, "b", Rank::Local)];
        assert_eq!(names(&table(&symbols, |_| 1), 0..6), "aaaa..");
    }

    #[test]
    fn sizes_that_wrap_around_and_names_out_of_bounds_are_harmless() {
        let mut builder = Builder::default();
        builder.push(RawSymbol {
            address: u64::MAX - 1,
            size: u64::MAX,
            name: NameRef {
                strings: 9,
                offset: u32::MAX,
            },
            rank: Rank::Global,
        });
        let table = builder.build(|_| 0);
        let function = table.find(u64::MAX - 1).unwrap();
        assert!(table.name(function.name).is_empty());
    }
}
