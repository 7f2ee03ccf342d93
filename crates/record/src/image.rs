//! Program files: what is mapped, parsed once for all processes that map it.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SegmentFlags};
use rustc_hash::FxHashMap;
use throughline_symbols::{
    DebugFileFinder, DebugKey, ModuleSymbols, Options, SharedBytes, open_file_below,
};
use throughline_target::{LuaLibrary, Mapping, identify_library, interpreter_range};

use crate::code_map::{Code, CodeMap, closure};

/// Files up to this size are read; of larger ones a copy is mapped, so that what is never looked at is never resident. The files
/// themselves are not mapped: somebody may shorten one, and reading on would end the recorder.
const READ_BYTES_MAX: u64 = 8 << 20;
/// Larger program files are refused.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// A part of a file, shared; what framehop keeps of a module.
#[derive(Clone)]
pub struct Section {
    file: SharedBytes,
    range: Range<usize>,
}

impl Deref for Section {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

/// Where a file lies, for the search for its debug file.
struct Origin {
    root: PathBuf,
    path: PathBuf,
}

/// One ELF file.
pub struct Image {
    /// The bytes.
    file: SharedBytes,
    /// Executable loaded parts: file offset range and the virtual address of its start.
    segments: Vec<(Range<u64>, u64)>,
    sections: FxHashMap<&'static str, (Range<u64>, Range<usize>)>,
    executable: Vec<(Range<u64>, Range<usize>)>,
    origin: Option<Origin>,
    symbols: OnceCell<Result<ModuleSymbols, String>>,
    lua: OnceCell<LuaLibrary>,
    interpreter: OnceCell<Option<Range<u64>>>,
    code_map: OnceCell<CodeMap>,
    /// Exports that were asked for: a request counter is looked at every second in every worker.
    exports: RefCell<FxHashMap<&'static str, Option<u64>>>,
}

/// Sections that unwinding needs.
const UNWIND_SECTIONS: [&str; 6] = [
    ".text",
    ".eh_frame",
    ".eh_frame_hdr",
    ".debug_frame",
    ".got",
    ".gopclntab",
];

impl Image {
    /// Parses a file.
    ///
    /// # Errors
    /// A sentence when it is no ELF file.
    pub fn parse(file: SharedBytes) -> Result<Self, String> {
        let shared = file.clone();
        let elf =
            object::File::parse(&*shared).map_err(|error| format!("not an ELF file: {error}"))?;
        let segments = elf
            .segments()
            .filter(|segment| {
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0)
            })
            .map(|segment| {
                let (offset, size) = segment.file_range();
                (offset..offset.saturating_add(size), segment.address())
            })
            .collect();
        let mut sections = FxHashMap::default();
        let mut executable = Vec::new();
        for section in elf.sections() {
            let address = section.address()..section.address().saturating_add(section.size());
            let Some(bytes) = section
                .file_range()
                .and_then(|(at, size)| file_range(&file, at, size))
            else {
                continue;
            };
            if section.kind() == SectionKind::Text {
                executable.push((address.clone(), bytes.clone()));
            }
            if let Ok(name) = section.name()
                && let Some(known) = UNWIND_SECTIONS.into_iter().find(|known| *known == name)
            {
                sections.insert(known, (address, bytes));
            }
        }
        Ok(Self {
            file,
            segments,
            sections,
            executable,
            origin: None,
            symbols: OnceCell::new(),
            lua: OnceCell::new(),
            interpreter: OnceCell::new(),
            code_map: OnceCell::new(),
            exports: RefCell::default(),
        })
    }

    /// The file's virtual address of an offset in an executable part; what a mapping of it adds is its bias. Only executable parts
    /// count: the linker may end the read-only part in the page in which the code begins, and with another address.
    #[must_use]
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages, so a mapping may begin before its segment does.
        const PAGE: u64 = 4096;
        self.segments
            .iter()
            .find(|(range, _)| (range.start & !(PAGE - 1)..range.end).contains(&offset))
            .map(|(range, address)| address.wrapping_sub(range.start).wrapping_add(offset))
    }

    /// Names, parsed when first asked for.
    pub fn symbols(&self) -> Result<&ModuleSymbols, &str> {
        self.symbols
            .get_or_init(|| {
                let mut symbols = ModuleSymbols::parse(self.file.clone(), &Options::default())
                    .map_err(|error| error.to_string())?;
                if let Some(origin) = &self.origin {
                    attach_debug_file(&mut symbols, origin);
                }
                Ok(symbols)
            })
            .as_ref()
            .map_err(String::as_str)
    }

    /// Which Lua the file brings, if any.
    pub fn lua(&self) -> &LuaLibrary {
        self.lua.get_or_init(|| identify_library(&self.file))
    }

    /// The machine code of LuaJIT's interpreter in the file, as virtual addresses of the file.
    pub fn interpreter(&self) -> Option<&Range<u64>> {
        self.interpreter
            .get_or_init(|| interpreter_range(&self.file).ok())
            .as_ref()
    }

    /// What its functions are for; `path` is where a process has it.
    pub fn code_map(&self, path: &str) -> &CodeMap {
        self.code_map
            .get_or_init(|| CodeMap::of(self.code(path.rsplit('/').next().unwrap_or(path))))
    }

    /// The function that starts at an address of the file, with all that it calls directly, transitively.
    pub fn functions_below(&self, start: u64) -> Vec<(u64, u64)> {
        closure(&self.code(""), start)
    }

    /// Where an exported function or variable lies, as a virtual address of the file.
    pub fn address_of_export(&self, name: &'static str) -> Option<u64> {
        let mut exports = self.exports.borrow_mut();
        *exports
            .entry(name)
            .or_insert_with(|| self.search_export(name))
    }

    fn search_export(&self, name: &str) -> Option<u64> {
        let elf = object::File::parse(&*self.file).ok()?;
        elf.dynamic_symbols()
            .find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
            .map(|symbol| symbol.address())
    }

    /// Where an exported function begins, as an offset in the file.
    pub fn file_offset_of_export(&self, name: &'static str) -> Option<usize> {
        let address = self.address_of_export(name)?;
        let (range, bytes) = self
            .executable
            .iter()
            .find(|(range, _)| range.contains(&address))?;
        usize::try_from(address - range.start)
            .ok()?
            .checked_add(bytes.start)
    }

    fn code<'a>(&'a self, name: &'a str) -> Code<'a> {
        Code {
            file: &self.file,
            executable: &self.executable,
            extents: self
                .symbols()
                .map(|symbols| symbols.function_extents().collect())
                .unwrap_or_default(),
            interpreter: self.interpreter().cloned(),
            name,
        }
    }

    /// Whether the bytes before this address are a call instruction, so that it can be a return address.
    #[must_use]
    pub fn follows_call(&self, address: u64) -> bool {
        let Some((range, bytes)) = self
            .executable
            .iter()
            .find(|(range, _)| range.contains(&address))
        else {
            return false;
        };
        let at = bytes.start + (address - range.start) as usize;
        let before = &self.file[at.saturating_sub(7).max(bytes.start)..at];
        ends_in_call(before)
    }

    /// What framehop needs to unwind through the file.
    #[must_use]
    pub fn unwind_sections(&self) -> ExplicitModuleSectionInfo<Section> {
        let range = |name: &str| self.sections.get(name).map(|(address, _)| address.clone());
        let data = |name: &str| {
            self.sections.get(name).map(|(_, bytes)| Section {
                file: self.file.clone(),
                range: bytes.clone(),
            })
        };
        ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            text: data(".text"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            got_svma: range(".got"),
            debug_frame: data(".debug_frame"),
            ..empty_sections()
        }
    }
}

/// Adds the debug file of a module when one is installed, in the process's file system or in this one's.
fn attach_debug_file(symbols: &mut ModuleSymbols, origin: &Origin) {
    for root in [&*origin.root, Path::new("/")] {
        let found = DebugFileFinder::new(root).find(DebugKey {
            build_id: symbols.build_id(),
            link: symbols.debug_link(),
            module: Some(&origin.path),
        });
        if let Ok(found) = found
            && symbols.add_debug_file(found.file).is_ok()
        {
            return;
        }
    }
}

/// framehop derives no default for section data without one.
fn empty_sections() -> ExplicitModuleSectionInfo<Section> {
    ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: None,
        text: None,
        stubs_svma: None,
        stub_helper_svma: None,
        got_svma: None,
        unwind_info: None,
        eh_frame_svma: None,
        eh_frame: None,
        eh_frame_hdr_svma: None,
        eh_frame_hdr: None,
        debug_frame: None,
        text_segment_svma: None,
        text_segment: None,
    }
}

fn file_range(file: &[u8], offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= file.len()).then_some(start..end)
}

/// Call forms of x86-64: E8 rel32, and FF /2 with a register or memory operand of 2 to 7 bytes (Intel SDM, CALL).
fn ends_in_call(before: &[u8]) -> bool {
    let back = |n: usize| {
        before
            .len()
            .checked_sub(n)
            .and_then(|i| before.get(i))
            .copied()
    };
    if back(5) == Some(0xe8) {
        return true;
    }
    (2..=7).any(|length| {
        back(length) == Some(0xff) && back(length - 1).is_some_and(|modrm| (modrm >> 3) & 7 == 2)
    })
}

/// Every file once, by device and inode.
#[derive(Clone, Default)]
pub struct Images {
    known: FxHashMap<(u32, u32, u64), Result<Rc<Image>, String>>,
}

impl Images {
    /// The image behind a mapping of a process.
    ///
    /// # Errors
    /// Why it cannot be read, as a sentence.
    pub fn of_mapping(&mut self, pid: u32, mapping: &Mapping) -> Result<Rc<Image>, String> {
        let key = (mapping.device.0, mapping.device.1, mapping.inode);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let image = read_mapped_file(pid, mapping)
            .and_then(Image::parse)
            .map(|mut image| {
                image.origin = Some(Origin {
                    root: format!("/proc/{pid}/root").into(),
                    path: mapping.path_lossy().unwrap_or_default().into(),
                });
                Rc::new(image)
            });
        self.known.insert(key, image.clone());
        image
    }
}

/// The file behind a mapping, also when its name is gone or means another file outside the container.
fn read_mapped_file(pid: u32, mapping: &Mapping) -> Result<SharedBytes, String> {
    let by_map = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    // Without CAP_CHECKPOINT_RESTORE the name has to do, which may lead anywhere by now: to a FIFO, or by a link out of the root.
    let by_path = || {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let path = OsStr::from_bytes(mapping.path.as_deref().unwrap_or_default());
        open_file_below(&root, Path::new(path))
    };
    let mut file = File::open(by_map)
        .or_else(|_| by_path())
        .map_err(|error| format!("its file cannot be opened: {error}"))?;
    let facts = file.metadata().map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if facts.len() > READ_BYTES_MAX {
        return SharedBytes::copy_of(&mut file, FILE_BYTES_MAX).map_err(|error| error.to_string());
    }
    let mut bytes = Vec::with_capacity(facts.len() as usize);
    file.take(READ_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_told_by_the_call_before_them() {
        assert!(ends_in_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4])); // call rel32
        assert!(ends_in_call(&[0xff, 0xd0])); // call rax
        assert!(ends_in_call(&[0x41, 0xff, 0xd4])); // call r12
        assert!(ends_in_call(&[0xff, 0x15, 1, 2, 3, 4])); // call [rip+disp32]
        assert!(ends_in_call(&[0xff, 0x50, 0x08])); // call [rax+8]
        assert!(!ends_in_call(&[0xff, 0xe0])); // jmp rax
        assert!(!ends_in_call(&[0x90; 7]));
        assert!(!ends_in_call(&[]));
    }
}
