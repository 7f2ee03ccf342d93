//! The sections that lines and inlined calls need, unpacked where they are compressed.

use std::ops::Range;

use gimli::SectionId;
use object::read::elf::SectionHeader;
use object::{CompressedData, CompressionFormat};

use super::{Files, OpenError};
use crate::bytes::SharedBytes;
use crate::elf::{Elf, LE, Section};
use crate::metered::{Meter, Metered};

/// Kept by [`Sections`]; variables and types are not looked at.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Read a name at a time, not as a whole.
const STRINGS: [SectionId; 2] = [SectionId::DebugStr, SectionId::DebugLineStr];

/// zlib's best ratio is 1032 (RFC 1951: 258 bytes for 2 bits); a section that claims more lies.
const MAX_ZLIB_RATIO: u64 = 1032;

/// Room for what small files read more than once.
const BYTES_TO_START: u64 = 1 << 20;

type Tables = gimli::DwarfSections<SectionBytes>;

/// The sections of a debug file, and of the one it shares entries with.
pub(crate) struct Sections {
    main: Tables,
    alternate: Option<Tables>,
    table_bytes: u64,
}

enum SectionBytes {
    InFile(SharedBytes, Range<usize>),
    Unpacked(Vec<u8>),
}

impl SectionBytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::InFile(bytes, range) => bytes.slice(range).unwrap_or_default(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

impl Sections {
    pub fn unpack(files: &Files, max_bytes: usize) -> Result<Self, OpenError> {
        let mut loader = Loader {
            left: max_bytes as u64,
            table_bytes: 0,
        };
        Ok(Self {
            main: loader.tables(&files.main)?,
            alternate: files
                .alternate
                .as_ref()
                .map(|file| loader.tables(file))
                .transpose()?,
            table_bytes: loader.table_bytes,
        })
    }

    /// The parser's view; every byte it reads is charged.
    pub fn dwarf<'a>(&'a self, meter: &'a Meter) -> gimli::Dwarf<Metered<'a>> {
        self.main.borrow_with_sup(self.alternate.as_ref(), |bytes| {
            Metered::new(bytes.get(), meter)
        })
    }

    /// What one question about an honest file may read. The largest is about a unit that link-time
    /// optimisation made of the whole program; finding the units reads less.
    pub fn bytes_to_answer(&self) -> u64 {
        BYTES_TO_START + 2 * self.table_bytes
    }
}

/// Loads tables and keeps the accounts.
struct Loader {
    /// Bytes that may still be unpacked.
    left: u64,
    /// Bytes of tables loaded, strings not counted.
    table_bytes: u64,
}

impl Loader {
    fn tables(&mut self, file: &SharedBytes) -> Result<Tables, OpenError> {
        let elf = Elf::parse(file)?;
        gimli::DwarfSections::load(|id| {
            let bytes = if NEEDED.contains(&id) {
                self.section(&elf, file, id)?
            } else {
                SectionBytes::Unpacked(Vec::new())
            };
            if !STRINGS.contains(&id) {
                self.table_bytes += bytes.get().len() as u64;
            }
            Ok(bytes)
        })
    }

    fn section(
        &mut self,
        elf: &Elf<'_>,
        file: &SharedBytes,
        id: SectionId,
    ) -> Result<SectionBytes, OpenError> {
        if let Some(section) = elf.section(id.name()).filter(|section| section.has_bytes()) {
            return match packed(elf, section)? {
                Some(packed) => self.unpack(packed),
                None => {
                    let range = section.file_range(file.len()).ok_or(OpenError::Packed)?;
                    Ok(SectionBytes::InFile(file.clone(), range))
                }
            };
        }
        // The older way, a section of another name: `ZLIB`, the size, big endian, the data.
        let old = id.name().replacen(".debug", ".zdebug", 1);
        let Some((_, bytes)) = elf.section_bytes(&old) else {
            return Ok(SectionBytes::Unpacked(Vec::new()));
        };
        let body = bytes.strip_prefix(b"ZLIB").ok_or(OpenError::Packed)?;
        let (size, data) = body.split_first_chunk().ok_or(OpenError::Packed)?;
        self.unpack(CompressedData {
            format: CompressionFormat::Zlib,
            data,
            uncompressed_size: u64::from_be_bytes(*size),
        })
    }

    fn unpack(&mut self, packed: CompressedData<'_>) -> Result<SectionBytes, OpenError> {
        let size = packed.uncompressed_size;
        let reachable = match packed.format {
            CompressionFormat::Zlib => (packed.data.len() as u64).saturating_mul(MAX_ZLIB_RATIO),
            _ => u64::MAX,
        };
        self.left = self
            .left
            .checked_sub(size)
            .filter(|_| size <= reachable)
            .ok_or(OpenError::Packed)?;
        let bytes = packed.decompress().map_err(|_| OpenError::Packed)?;
        Ok(SectionBytes::Unpacked(bytes.into_owned()))
    }
}

/// The compressed data of a section with `SHF_COMPRESSED`.
fn packed<'a>(
    elf: &Elf<'a>,
    section: &Section<'a>,
) -> Result<Option<CompressedData<'a>>, OpenError> {
    let compression = section.header.compression(LE, elf.data);
    let Some((header, offset, size)) = compression.map_err(|_| OpenError::Packed)? else {
        return Ok(None);
    };
    let format = match header.ch_type.get(LE) {
        object::elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        object::elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        _ => return Err(OpenError::Packed),
    };
    let start = usize::try_from(offset).map_err(|_| OpenError::Packed)?;
    let size = usize::try_from(size).map_err(|_| OpenError::Packed)?;
    let data = start
        .checked_add(size)
        .and_then(|end| elf.data.get(start..end))
        .ok_or(OpenError::Packed)?;
    Ok(Some(CompressedData {
        format,
        data,
        uncompressed_size: header.ch_size.get(LE),
    }))
}
