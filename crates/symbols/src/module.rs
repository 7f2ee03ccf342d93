//! One mapped ELF file: from the bytes of it, and of its debug file, to names.

use object::elf;
use object::read::elf::{SectionHeader as _, Sym as _};

use crate::bytes::SharedBytes;
use crate::demangle;
use crate::dwarf::{DebugInfo, Dwarf, DwarfAnswer, Files};
use crate::elf::{BuildId, CodeRanges, DebugLink, Elf, ElfError, LE, LoadSegment, Section};
use crate::function_starts::FunctionStarts;
use crate::function_table::{Builder, FunctionTable, NameRef, Rank, RawSymbol, Strings};
use crate::go_table::{GoFrame, GoFunction, GoTable};
use crate::lookup::{Lookup, Name, NameReason};
use crate::mini_debug_info;
use crate::plt::{self, Callee, Stub};

/// How far [`ModuleSymbols`] goes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// A compressed table that claims or reaches more than this is refused. It bounds what a small
    /// hostile file can make the reader allocate.
    pub max_unpacked_bytes: usize,
    /// Read inlined calls and lines from DWARF.
    pub debug_info: bool,
    /// Bytes of DWARF whose units are kept in memory between look-ups, which needs about four times
    /// as much.
    pub max_kept_debug_bytes: u64,
}

/// The debug information of a module that was split off.
#[derive(Debug, Clone)]
pub struct DebugFile {
    /// The debug file itself.
    pub file: SharedBytes,
    /// The file that it shares entries with, when [`crate::alternate_link`] names one.
    pub alternate: Option<SharedBytes>,
}

impl From<SharedBytes> for DebugFile {
    fn from(file: SharedBytes) -> Self {
        Self {
            file,
            alternate: None,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_unpacked_bytes: 256 << 20,
            debug_info: true,
            max_kept_debug_bytes: 16 << 20,
        }
    }
}

/// The names of one ELF file.
///
/// Holds offsets into the file's bytes, not copies: about 40 bytes for each symbol and 12 for each
/// unwinding entry.
#[derive(Debug)]
pub struct ModuleSymbols {
    file: SharedBytes,
    options: Options,
    build_id: Option<BuildId>,
    debug_link: Option<DebugLink>,
    segments: Vec<LoadSegment>,
    code: CodeRanges,
    functions: FunctionTable,
    dynamic_names: Vec<NameRef>,
    stubs: Vec<Stub>,
    starts: FunctionStarts,
    go: Option<GoTable>,
    dwarf: Option<Dwarf>,
    sources: TableSizes,
    damaged: Vec<&'static str>,
}

/// How many function symbols each table holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSizes {
    /// `.symtab` of the file itself.
    pub symtab: usize,
    /// `.dynsym`: what the file exports.
    pub dynsym: usize,
    /// The symbol table inside `.gnu_debugdata`.
    pub mini_debug_info: usize,
    /// `.symtab` of the debug file.
    pub debug_file: usize,
    /// Go's own function table.
    pub go: usize,
}

impl TableSizes {
    /// Names of functions that the file does not export are known.
    pub fn has_internal_names(&self) -> bool {
        self.symtab + self.mini_debug_info + self.debug_file + self.go > 0
    }
}

impl ModuleSymbols {
    /// Reads the tables of a file, without a debug file.
    ///
    /// # Errors
    ///
    /// When the file is no linked 64-bit little-endian ELF file. A damaged table is no error:
    /// the others are read, and [`Self::damaged_tables`] names it.
    pub fn parse(file: SharedBytes, options: &Options) -> Result<Self, ElfError> {
        Self::read(file, None, options)
    }

    /// Reads the tables again, together with those of a debug file.
    ///
    /// # Errors
    ///
    /// When the debug file is not readable, or carries another build id than the module: its
    /// addresses would give wrong names. The module itself stays as it was.
    pub fn add_debug_file(&mut self, debug: impl Into<DebugFile>) -> Result<(), ElfError> {
        let debug = debug.into();
        let found = Elf::parse(&debug.file)?.build_id();
        if let Some(expected) = &self.build_id
            && found.as_ref() != Some(expected)
        {
            return Err(ElfError::OtherBuild {
                expected: expected.to_hex(),
                found: found.map_or_else(|| "none".to_owned(), |id| id.to_hex()),
            });
        }
        *self = Self::read(self.file.clone(), Some(debug), &self.options)?;
        Ok(())
    }

    fn read(
        file: SharedBytes,
        debug: Option<DebugFile>,
        options: &Options,
    ) -> Result<Self, ElfError> {
        let elf = Elf::parse(&file)?;
        let code = elf.code();
        let starts = FunctionStarts::read(&elf);
        let mut reader = TableReader {
            code: &code,
            builder: Builder::default(),
            damaged: Vec::new(),
        };
        let mut sources = TableSizes {
            symtab: reader.add(&elf, &file, ".symtab"),
            dynsym: reader.add(&elf, &file, ".dynsym"),
            ..TableSizes::default()
        };
        sources.mini_debug_info = reader.add_mini_debug_info(&elf, options);
        if let Some(debug) = &debug {
            let debug_elf = Elf::parse(&debug.file)?;
            sources.debug_file = reader.add(&debug_elf, &debug.file, ".symtab");
        }
        let go = GoTable::find(&elf, &file);
        sources.go = go.as_ref().map_or(0, GoTable::len);
        let dwarf = dwarf_of(&elf, &file, debug, options)?;
        let dynamic_names = reader.dynamic_names(&elf, &file);
        let TableReader {
            builder,
            mut damaged,
            ..
        } = reader;
        if starts.damaged {
            damaged.push(".eh_frame");
        }
        let functions = builder.build(|address| end_limit(address, &starts, &code));
        Ok(Self {
            options: options.clone(),
            build_id: elf.build_id(),
            debug_link: elf.debug_link(),
            segments: elf.load_segments(),
            stubs: plt::stubs(&elf),
            functions,
            dynamic_names,
            starts,
            go,
            dwarf,
            sources,
            damaged,
            code,
            file,
        })
    }

    /// What the address `svma`, as stated in the file, is called.
    ///
    /// For a return address ask about the byte before it: the call may be the last instruction of
    /// its function.
    pub fn lookup(&self, svma: u64) -> Lookup {
        if self.code.find(svma).is_none() {
            return Lookup::unnamed(NameReason::OutsideSections);
        }
        if let Some(stub) = plt::find(&self.stubs, svma) {
            return self.stub_name(stub);
        }
        let answer = self
            .dwarf
            .as_ref()
            .map_or_else(DwarfAnswer::default, |dwarf| dwarf.answer(svma));
        let go_function = self.go.as_ref().and_then(|go| go.function(svma));
        let named = self
            .symbol_at(svma)
            .or_else(|| self.go_name(go_function?))
            .or_else(|| {
                let start = self.starts.find(svma)?.start;
                Some((answer.function?, start))
            });
        let Some((function, function_start)) = named else {
            return Lookup::Unnamed {
                function_start: self.starts.find(svma).map(|extent| extent.start),
                reason: self.absence(),
            };
        };
        let source = answer.source.or_else(|| {
            let go = self.go.as_ref()?;
            go.line(go_function?, svma)
        });
        Lookup::Named {
            function,
            function_start,
            source,
            inlined: answer.inlined,
        }
    }

    /// A table names the function at `svma`; like [`Self::lookup`], and cheaper.
    pub(crate) fn has_name(&self, svma: u64) -> bool {
        self.functions.find(svma).is_some()
            || plt::find(&self.stubs, svma).is_some()
            || self
                .go
                .as_ref()
                .is_some_and(|go| go.function(svma).is_some())
    }

    /// The frame that Go code keeps at `svma`; `None` where there is no Go code. Go writes no
    /// `.eh_frame`, and a leaf function has no frame pointer either: this table is how Go itself unwinds.
    pub fn go_frame(&self, svma: u64) -> Option<GoFrame> {
        let go = self.go.as_ref()?;
        go.frame(go.function(svma)?, svma)
    }

    fn symbol_at(&self, svma: u64) -> Option<(Name, u64)> {
        let function = self.functions.find(svma)?;
        let name = demangle::symbol_name(self.functions.name(function.name));
        Some((name, function.start))
    }

    fn go_name(&self, function: GoFunction) -> Option<(Name, u64)> {
        let name = self.go.as_ref()?.name(function)?;
        Some((demangle::name_of(name), function.start))
    }

    fn absence(&self) -> NameReason {
        if !self.damaged.is_empty() {
            NameReason::Damaged
        } else if self.functions.is_empty() && self.go.is_none() {
            NameReason::NoSymbolTable
        } else {
            NameReason::BetweenSymbols
        }
    }

    fn stub_name(&self, stub: &Stub) -> Lookup {
        let callee = match stub.callee {
            Callee::Symbol(index) => self.dynamic_names.get(index as usize).copied(),
            Callee::SelectedBy(address) => {
                self.functions.starting_at(address).map(|found| found.name)
            }
            Callee::Resolver => None,
        };
        let callee = callee.map(|name| demangle::symbol_name(self.functions.name(name)));
        match callee {
            Some(callee) => Lookup::Named {
                function: Name {
                    display: format!("{}@plt", callee.display),
                    raw: format!("{}@plt", callee.raw),
                },
                function_start: stub.start,
                source: None,
                inlined: Vec::new(),
            },
            None => Lookup::Unnamed {
                function_start: Some(stub.start),
                reason: NameReason::PltHeader,
            },
        }
    }

    /// The address, as stated in the file, of a byte of the file: what a mapping's
    /// `ip - start + offset` is to be translated with.
    pub fn svma_of_file_offset(&self, offset: u64) -> Option<u64> {
        // Two segments may hold the same page of the file; code is asked about.
        let holds = |segment: &&LoadSegment| {
            offset
                .checked_sub(segment.file_offset)
                .is_some_and(|into| into < segment.file_bytes)
        };
        let executable = self.segments.iter().filter(|segment| segment.executable);
        let segment = executable
            .clone()
            .find(holds)
            .or_else(|| self.segments.iter().find(holds))?;
        segment
            .addresses
            .start
            .checked_add(offset - segment.file_offset)
    }

    /// The build id, when the file carries one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// The debug file that `.gnu_debuglink` names.
    pub fn debug_link(&self) -> Option<&DebugLink> {
        self.debug_link.as_ref()
    }

    /// The file-backed pieces of its address space.
    pub fn load_segments(&self) -> &[LoadSegment] {
        &self.segments
    }

    /// Whether lines and inlined calls can be had.
    pub fn debug_info(&self) -> DebugInfo {
        self.dwarf.as_ref().map_or(DebugInfo::Absent, Dwarf::status)
    }

    /// How many function symbols each table holds.
    pub fn table_sizes(&self) -> TableSizes {
        self.sources
    }

    /// Tables that could not be read, or not to their end.
    pub fn damaged_tables(&self) -> &[&'static str] {
        &self.damaged
    }

    /// Function extents from unwinding entries, ascending: (start, end).
    pub fn function_extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.starts.iter().map(|extent| (extent.start, extent.end))
    }
}

/// The debug file's DWARF, else the file's own.
fn dwarf_of(
    elf: &Elf<'_>,
    file: &SharedBytes,
    debug: Option<DebugFile>,
    options: &Options,
) -> Result<Option<Dwarf>, ElfError> {
    if !options.debug_info {
        return Ok(None);
    }
    let files = match debug {
        Some(debug) if Elf::parse(&debug.file)?.has_debug_info() => Some(Files {
            main: debug.file,
            alternate: debug.alternate,
        }),
        _ => elf.has_debug_info().then(|| Files {
            main: file.clone(),
            alternate: None,
        }),
    };
    Ok(files.map(|files| {
        Dwarf::new(
            files,
            options.max_unpacked_bytes,
            options.max_kept_debug_bytes,
        )
    }))
}

/// Where a function of unknown size that starts at `address` ends at the latest.
fn end_limit(address: u64, starts: &FunctionStarts, code: &CodeRanges) -> u64 {
    if let Some(extent) = starts.find(address) {
        return extent.end;
    }
    let section_end = code.find(address).map(|range| range.end);
    match (section_end, starts.next_start(address)) {
        (Some(section_end), Some(next)) => section_end.min(next),
        (Some(section_end), None) => section_end,
        (None, _) => 0,
    }
}

/// Collects symbols of several files into one builder.
struct TableReader<'c> {
    code: &'c CodeRanges,
    builder: Builder,
    damaged: Vec<&'static str>,
}

impl TableReader<'_> {
    /// Adds the functions of a symbol table; how many there were.
    fn add(&mut self, elf: &Elf<'_>, bytes: &SharedBytes, name: &'static str) -> usize {
        let Some(section) = elf.section(name).filter(|section| section.has_bytes()) else {
            return 0;
        };
        let table = symbols_of(elf, section);
        let strings = strings_of(elf, section, bytes);
        let (Some(table), Some(strings)) = (table, strings) else {
            self.damaged.push(name);
            return 0;
        };
        let Some(strings) = self.builder.add_strings(strings) else {
            return 0;
        };
        self.builder.reserve(table.len());
        let mut functions = 0;
        for symbol in table {
            if let Some(rank) = self.function_rank(symbol) {
                functions += 1;
                self.builder.push(RawSymbol {
                    address: symbol.st_value(LE),
                    size: symbol.st_size(LE),
                    name: NameRef {
                        strings,
                        offset: symbol.st_name(LE),
                    },
                    rank,
                });
            }
        }
        functions
    }

    /// `None` for what is no function defined in this file.
    fn function_rank(&self, symbol: &elf::Sym64<object::LittleEndian>) -> Option<Rank> {
        let section = symbol.st_shndx(LE);
        if section == elf::SHN_UNDEF || section == elf::SHN_ABS || symbol.st_name(LE) == 0 {
            return None;
        }
        self.code.find(symbol.st_value(LE))?;
        match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC if symbol.st_bind() == elf::STB_LOCAL => {
                Some(Rank::Local)
            }
            elf::STT_FUNC | elf::STT_GNU_IFUNC => Some(Rank::Global),
            elf::STT_NOTYPE => Some(Rank::Label),
            _ => None,
        }
    }

    fn add_mini_debug_info(&mut self, elf: &Elf<'_>, options: &Options) -> usize {
        let Some((_, packed)) = elf.section_bytes(".gnu_debugdata") else {
            return 0;
        };
        let unpacked = mini_debug_info::unpack(packed, options.max_unpacked_bytes);
        let Ok(unpacked) = unpacked else {
            self.damaged.push(".gnu_debugdata");
            return 0;
        };
        match Elf::parse(&unpacked) {
            Ok(inner) => self.add(&inner, &unpacked, ".symtab"),
            Err(_) => {
                self.damaged.push(".gnu_debugdata");
                0
            }
        }
    }

    /// The names of `.dynsym` by index, undefined ones included: stubs refer to them.
    fn dynamic_names(&mut self, elf: &Elf<'_>, bytes: &SharedBytes) -> Vec<NameRef> {
        self.try_dynamic_names(elf, bytes).unwrap_or_default()
    }

    fn try_dynamic_names(&mut self, elf: &Elf<'_>, bytes: &SharedBytes) -> Option<Vec<NameRef>> {
        let section = elf.section(".dynsym")?;
        let table = symbols_of(elf, section)?;
        let strings = self.builder.add_strings(strings_of(elf, section, bytes)?)?;
        let name = |symbol: &elf::Sym64<_>| NameRef {
            strings,
            offset: symbol.st_name(LE),
        };
        Some(table.iter().map(name).collect())
    }
}

fn symbols_of<'a>(
    elf: &Elf<'a>,
    section: &Section<'a>,
) -> Option<&'a [elf::Sym64<object::LittleEndian>]> {
    let range = section.file_range(elf.data.len())?;
    let bytes = elf.data.get(range)?;
    let count = bytes.len() / size_of::<elf::Sym64<object::LittleEndian>>();
    object::pod::slice_from_bytes(bytes, count)
        .ok()
        .map(|(symbols, _)| symbols)
}

fn strings_of(elf: &Elf<'_>, section: &Section<'_>, bytes: &SharedBytes) -> Option<Strings> {
    let strings = elf.sections().get(section.header.link(LE).0)?;
    Some(Strings {
        bytes: bytes.clone(),
        range: strings.file_range(elf.data.len())?,
    })
}
