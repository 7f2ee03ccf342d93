//! The few parts of an ELF file that the tables need: sections, segments, notes.
//!
//! Only linked 64-bit little-endian files are read: those are what an x86-64 or AArch64 Linux
//! process maps.

use std::ops::Range;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

pub(crate) type Header = elf::FileHeader64<LittleEndian>;
pub(crate) type Rela = elf::Rela64<LittleEndian>;
pub(crate) const LE: LittleEndian = LittleEndian;

/// Why a file cannot be read at all. Damage of a single table is no error: see
/// [`crate::ModuleSymbols::damaged_tables`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The first four bytes are not `7f 45 4c 46`.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file of a kind that no 64-bit little-endian Linux process maps as a module.
    #[error("unsupported ELF file: {what}")]
    Unsupported {
        /// What makes it so.
        what: &'static str,
    },
    /// The header or the section table contradicts the file's size.
    #[error("damaged ELF file: {what}")]
    Damaged {
        /// The part that could not be read.
        what: &'static str,
    },
    /// A debug file belongs to another build of the module.
    #[error("build id {found} of the debug file differs from the module's {expected}")]
    OtherBuild {
        /// The module's id.
        expected: String,
        /// The debug file's id, or `none`.
        found: String,
    },
}

impl ElfError {
    /// The reason to give for addresses of such a file.
    pub fn name_reason(&self) -> crate::NameReason {
        match self {
            Self::NotElf => crate::NameReason::NotElf,
            Self::Unsupported { .. } => crate::NameReason::UnsupportedElf,
            Self::Damaged { .. } | Self::OtherBuild { .. } => crate::NameReason::Damaged,
        }
    }
}

/// A file-backed piece of the address space: `PT_LOAD`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSegment {
    /// Addresses as stated in the file (SVMA).
    pub addresses: Range<u64>,
    /// Where its first byte lies in the file.
    pub file_offset: u64,
    /// Bytes that the file holds; the rest is zero.
    pub file_bytes: u64,
    /// It holds machine code.
    pub executable: bool,
}

/// A section, located and not yet read.
#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    pub header: &'a elf::SectionHeader64<LittleEndian>,
    pub name: &'a [u8],
}

impl Section<'_> {
    pub fn address(&self) -> u64 {
        self.header.sh_addr(LE)
    }

    pub fn size(&self) -> u64 {
        self.header.sh_size(LE)
    }

    /// Addresses it occupies; empty when they would wrap around.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.address();
        start..start.checked_add(self.size()).unwrap_or(start)
    }

    pub fn is_executable(&self) -> bool {
        self.header.sh_flags(LE).contains(elf::SHF_EXECINSTR)
    }

    /// The bytes of it are in the file (a debug file keeps the headers and drops the bytes).
    pub fn has_bytes(&self) -> bool {
        self.header.sh_type(LE) != elf::SHT_NOBITS
    }

    /// Where its bytes lie in a file of `len` bytes.
    pub fn file_range(&self, len: usize) -> Option<Range<usize>> {
        let (offset, size) = self.header.file_range(LE)?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (end <= len).then_some(start..end)
    }
}

/// Sections and segments looked at. Linked files have fewer than a hundred and a dozen; a hostile one
/// has as many as fit, all of them the whole file.
const MAX_SECTIONS: usize = 4096;
const MAX_SEGMENTS: usize = 256;
/// Names of sections that are looked for are shorter.
const MAX_SECTION_NAME_BYTES: usize = 64;
/// Notes beyond this are not looked through for a build id.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// An ELF file with its section and segment tables.
pub(crate) struct Elf<'a> {
    pub data: &'a [u8],
    sections: Vec<Section<'a>>,
    segments: &'a [elf::ProgramHeader64<LittleEndian>],
    pub machine: elf::Machine,
}

impl<'a> Elf<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, ElfError> {
        let ident = data.get(..16).ok_or(ElfError::NotElf)?;
        if !ident.starts_with(&elf::ELFMAG) {
            return Err(ElfError::NotElf);
        }
        if ident.get(4) != Some(&2) {
            return Err(ElfError::Unsupported { what: "not 64 bit" });
        }
        if ident.get(5) != Some(&1) {
            return Err(ElfError::Unsupported { what: "big endian" });
        }
        let header = Header::parse(data).map_err(|_| ElfError::Damaged {
            what: "file header",
        })?;
        if header.e_type(LE) == elf::ET_REL {
            let what = "an object file that is not linked";
            return Err(ElfError::Unsupported { what });
        }
        if header.e_type(LE) == elf::ET_CORE {
            return Err(ElfError::Unsupported {
                what: "a core dump",
            });
        }
        let segments = header.program_headers(LE, data).unwrap_or_default();
        Ok(Self {
            data,
            // A file cut short loses its section table, which lies at the end; its segments still
            // say where code is.
            sections: sections(header, data).unwrap_or_default(),
            segments: segments.get(..MAX_SEGMENTS).unwrap_or(segments),
            machine: header.e_machine(LE),
        })
    }

    pub fn sections(&self) -> &[Section<'a>] {
        &self.sections
    }

    pub fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections
            .iter()
            .find(|section| section.name == name.as_bytes())
    }

    /// A section's bytes as they lie in the file.
    pub fn section_bytes(&self, name: &str) -> Option<(&Section<'a>, &'a [u8])> {
        let section = self.section(name)?;
        let bytes = self.data.get(section.file_range(self.data.len())?)?;
        Some((section, bytes))
    }

    pub fn load_segments(&self) -> Vec<LoadSegment> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type(LE) == elf::PT_LOAD)
            .filter_map(|segment| {
                let start = segment.p_vaddr(LE);
                Some(LoadSegment {
                    addresses: start..start.checked_add(segment.p_memsz(LE))?,
                    file_offset: segment.p_offset(LE),
                    file_bytes: segment.p_filesz(LE),
                    executable: segment.p_flags(LE).contains(elf::PF_X),
                })
            })
            .collect()
    }

    /// Where code lies: executable sections, or executable segments in a file without sections.
    pub fn code(&self) -> CodeRanges {
        let sections = self
            .sections
            .iter()
            .filter(|section| section.is_executable());
        let ranges: Vec<_> = sections
            .map(Section::addresses)
            .filter(|range| !range.is_empty())
            .collect();
        if !ranges.is_empty() {
            return CodeRanges::new(ranges);
        }
        let segments = self.load_segments().into_iter();
        let executable = segments.filter(|segment| segment.executable);
        CodeRanges::new(executable.map(|segment| segment.addresses).collect())
    }

    /// The bytes at an address, as far as the file holds them.
    pub fn bytes_at(&self, address: u64) -> Option<&'a [u8]> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type(LE) == elf::PT_LOAD)
            .find_map(|segment| {
                let into = address.checked_sub(segment.p_vaddr(LE))?;
                let left = segment.p_filesz(LE).checked_sub(into)?;
                let start = usize::try_from(segment.p_offset(LE).checked_add(into)?).ok()?;
                let end = start.checked_add(usize::try_from(left).ok()?)?;
                self.data.get(start..end.min(self.data.len()))
            })
    }

    /// The `NT_GNU_BUILD_ID` note, looked for in segments first: they survive `sstrip`.
    pub fn build_id(&self) -> Option<BuildId> {
        let in_segments = self
            .segments
            .iter()
            .filter(|segment| segment.p_filesz(LE) <= MAX_NOTE_BYTES)
            .find_map(|segment| build_id_among(segment.notes(LE, self.data).ok()??));
        in_segments.or_else(|| {
            self.sections
                .iter()
                .filter(|section| section.size() <= MAX_NOTE_BYTES)
                .find_map(|section| build_id_among(section.header.notes(LE, self.data).ok()??))
        })
    }

    /// `.gnu_debugaltlink`: where the entries that several debug files share lie.
    pub fn alternate_link(&self) -> Option<AlternateLink> {
        let (_, bytes) = self.section_bytes(".gnu_debugaltlink")?;
        let end = memchr::memchr(0, bytes)?;
        Some(AlternateLink {
            path: String::from_utf8(bytes.get(..end)?.to_vec()).ok()?,
            build_id: BuildId::from_bytes(bytes.get(end + 1..)?)?,
        })
    }

    /// It has DWARF, compressed or not.
    pub fn has_debug_info(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| {
            self.section(name)
                .is_some_and(|section| section.has_bytes() && section.size() > 0)
        })
    }

    /// `.gnu_debuglink`: the name of the debug file and the CRC-32 of its bytes.
    pub fn debug_link(&self) -> Option<DebugLink> {
        let (_, bytes) = self.section_bytes(".gnu_debuglink")?;
        let end = memchr::memchr(0, bytes)?;
        let file_name = std::str::from_utf8(bytes.get(..end)?).ok()?;
        let crc_at = (end + 1).next_multiple_of(4);
        let crc = bytes.get(crc_at..crc_at + 4)?;
        // A name with a slash would leave the directories that are searched.
        let plain = !file_name.is_empty() && !file_name.contains('/');
        plain.then(|| DebugLink {
            file_name: file_name.to_owned(),
            crc32: u32::from_le_bytes(crc.try_into().unwrap_or_default()),
        })
    }
}

fn sections<'a>(header: &Header, data: &'a [u8]) -> object::Result<Vec<Section<'a>>> {
    let headers = header.section_headers(LE, data)?;
    let names = usize::try_from(header.shstrndx(LE, data)?)
        .ok()
        .and_then(|index| headers.get(index)?.data(LE, data).ok())
        .unwrap_or_default();
    let name = |header: &elf::SectionHeader64<LittleEndian>| {
        let from = names.get(header.sh_name(LE) as usize..).unwrap_or_default();
        let window = from.get(..MAX_SECTION_NAME_BYTES).unwrap_or(from);
        let end = memchr::memchr(0, window).unwrap_or(window.len());
        window.get(..end).unwrap_or_default()
    };
    Ok(headers
        .iter()
        .take(MAX_SECTIONS)
        .map(|header| Section {
            header,
            name: name(header),
        })
        .collect())
}

/// Ranges of code, ascending and free of overlap.
#[derive(Debug)]
pub(crate) struct CodeRanges(Vec<Range<u64>>);

impl CodeRanges {
    fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut end = 0;
        for range in &mut ranges {
            range.start = range.start.max(end);
            end = end.max(range.end);
        }
        ranges.retain(|range| !range.is_empty());
        Self(ranges)
    }

    /// The range that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Range<u64>> {
        let after = self.0.partition_point(|range| range.start <= address);
        self.0
            .get(after.checked_sub(1)?)
            .filter(|range| range.contains(&address))
    }
}

fn build_id_among(mut notes: object::read::elf::NoteIterator<'_, Header>) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return BuildId::from_bytes(note.desc());
        }
    }
    None
}

/// The linker's hash over a build, which names its debug file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// SHA-1 has 20 bytes, other styles 8 to 32; more is not a build id.
    const MAX_BYTES: usize = 64;

    /// `None` when there are fewer than two bytes (the debug file's directory needs one, its name
    /// another) or more than any style has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (2..=Self::MAX_BYTES)
            .contains(&bytes.len())
            .then(|| Self(bytes.to_vec()))
    }

    /// The bytes of the note.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// `bb041e...`, two lower-case digits a byte.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Display for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// What `.gnu_debuglink` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLink {
    /// A file name without a directory.
    pub file_name: String,
    /// CRC-32 (the polynomial of zlib) over the debug file's bytes.
    pub crc32: u32,
}

/// What `.gnu_debugaltlink` says, written by dwz.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlternateLink {
    /// Absolute, or relative to the debug file.
    pub path: String,
    /// The shared file's build id.
    pub build_id: BuildId,
}

/// The link to shared debug entries in a debug file.
///
/// # Errors
///
/// When the file is not an ELF file that this crate reads. `Ok(None)`: it shares none.
pub fn alternate_link(elf: &[u8]) -> Result<Option<AlternateLink>, ElfError> {
    Ok(Elf::parse(elf)?.alternate_link())
}

/// The build id of an ELF file.
///
/// # Errors
///
/// When the file is not an ELF file that this crate reads. `Ok(None)`: it carries none.
pub fn build_id(elf: &[u8]) -> Result<Option<BuildId>, ElfError> {
    Ok(Elf::parse(elf)?.build_id())
}
