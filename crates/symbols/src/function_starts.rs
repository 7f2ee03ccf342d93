//! Where functions start and end according to .eh_frame or .debug_frame: the linker keeps these
//! entries when names are stripped, so nameless code still groups by function.

use gimli::{BaseAddresses, CieOrFde, Section, UnwindSection};

use crate::elf::Elf;
use crate::metered::{Meter, Metered};

/// Function extents, ascending and free of overlap. 12 bytes each.
#[derive(Debug, Default)]
pub(crate) struct FunctionStarts {
    starts: Vec<u64>,
    lengths: Vec<u32>,
    /// The section ended in bytes that are no entry.
    pub damaged: bool,
}

/// One function's extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub end: u64,
}

impl FunctionStarts {
    /// Reads both sections of a file; the same function in both counts once.
    pub fn read(elf: &Elf<'_>) -> Self {
        let mut found = Found::default();
        let bases = bases(elf);
        if let Some((_, bytes)) = elf.section_bytes(".eh_frame") {
            let meter = meter_for(bytes);
            let section = gimli::EhFrame::from(Metered::new(bytes, &meter));
            found.collect(&section, &bases);
        }
        if let Some((section, bytes)) = elf.section_bytes(".debug_frame")
            && !is_compressed(section)
        {
            let meter = meter_for(bytes);
            let section = gimli::DebugFrame::from(Metered::new(bytes, &meter));
            found.collect(&section, &bases);
        }
        found.finish()
    }

    /// The function that covers `address`.
    pub fn find(&self, address: u64) -> Option<Extent> {
        let after = self.starts.partition_point(|&start| start <= address);
        let at = after.checked_sub(1)?;
        let start = *self.starts.get(at)?;
        let end = start.saturating_add(u64::from(*self.lengths.get(at)?));
        (address < end).then_some(Extent { start, end })
    }

    /// Where the next function after `address` starts.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= address);
        self.starts.get(after).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.starts
            .iter()
            .zip(&self.lengths)
            .map(|(&start, &length)| Extent {
                start,
                end: start.saturating_add(u64::from(length)),
            })
    }
}

/// Each entry is read once, and its common part once for each place it is referred from.
fn meter_for(bytes: &[u8]) -> Meter {
    let meter = Meter::default();
    meter.allow((1 << 20) + 4 * bytes.len() as u64);
    meter
}

fn is_compressed(section: &crate::elf::Section<'_>) -> bool {
    use object::read::elf::SectionHeader;
    section
        .header
        .sh_flags(crate::elf::LE)
        .contains(object::elf::SHF_COMPRESSED)
}

fn bases(elf: &Elf<'_>) -> BaseAddresses {
    let address = |name: &str| elf.section(name).map(|section| section.address());
    let mut bases = BaseAddresses::default();
    if let Some(text) = address(".text") {
        bases = bases.set_text(text);
    }
    if let Some(frame) = address(".eh_frame") {
        bases = bases.set_eh_frame(frame);
    }
    if let Some(got) = address(".got") {
        bases = bases.set_got(got);
    }
    bases
}

#[derive(Default)]
struct Found {
    extents: Vec<(u64, u32)>,
    damaged: bool,
}

impl Found {
    fn collect<'a, S>(&mut self, section: &S, bases: &BaseAddresses)
    where
        S: UnwindSection<Metered<'a>> + Section<Metered<'a>>,
        S::Offset: gimli::UnwindOffset<usize> + std::hash::Hash,
    {
        // Entries of one compilation share their common part: parse each once.
        let mut cies = rustc_hash::FxHashMap::default();
        let mut entries = section.entries(bases);
        loop {
            match entries.next() {
                Ok(None) => return,
                Ok(Some(CieOrFde::Cie(_))) => {}
                Ok(Some(CieOrFde::Fde(partial))) => {
                    let fde = partial.parse(|section, bases, offset| {
                        let key = gimli::UnwindOffset::into(offset);
                        if let Some(cie) = cies.get(&key) {
                            return Ok(gimli::CommonInformationEntry::clone(cie));
                        }
                        let cie = section.cie_from_offset(bases, offset)?;
                        cies.insert(key, cie.clone());
                        Ok(cie)
                    });
                    match fde {
                        Ok(fde) => self.push(fde.initial_address(), fde.len()),
                        Err(_) => self.damaged = true,
                    }
                }
                Err(_) => {
                    self.damaged = true;
                    return;
                }
            }
        }
    }

    fn push(&mut self, start: u64, length: u64) {
        // Discarded functions keep an entry with address 0 in some linkers.
        if start != 0 && length != 0 {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            self.extents.push((start, length));
        }
    }

    fn finish(mut self) -> FunctionStarts {
        self.extents.sort_unstable();
        self.extents.dedup_by_key(|(start, _)| *start);
        // Entries do not overlap in an honest file; in another one the later start wins.
        let mut next_start = u64::MAX;
        for (start, length) in self.extents.iter_mut().rev() {
            let room = u32::try_from(next_start - *start).unwrap_or(u32::MAX);
            *length = (*length).min(room);
            next_start = *start;
        }
        FunctionStarts {
            starts: self.extents.iter().map(|(start, _)| *start).collect(),
            lengths: self.extents.iter().map(|(_, length)| *length).collect(),
            damaged: self.damaged,
        }
    }
}
