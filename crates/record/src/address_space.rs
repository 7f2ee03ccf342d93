//! The executable mappings of one process, and how to unwind through them.

use std::rc::Rc;

use framehop::x86_64::{CacheX86_64, UnwinderX86_64};
use framehop::{Module, Unwinder};
use throughline_symbols::SharedBytes;
use throughline_target::{LiveProcess, Mapping, Memory, parse_maps};

use crate::image::{Image, Images, Section};

/// A program file where a process has it.
pub struct MappedImage {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// What to subtract from an address to get the file's own.
    pub bias: u64,
    /// The file, or why it cannot be read.
    pub image: Result<Rc<Image>, String>,
    /// Path as in /proc/PID/maps.
    pub path: String,
}

/// What lies at an address.
pub enum Place<'a> {
    /// Code of a file.
    Image(&'a MappedImage),
    /// Executable memory without a file: machine code made at run time.
    Anonymous,
    /// Nothing executable that was known when the mappings were last read.
    Unknown,
}

/// The executable mappings of one process at one time.
pub struct AddressSpace {
    images: Vec<MappedImage>,
    anonymous: Vec<(u64, u64)>,
    /// All mappings, for the search for VMs.
    pub mappings: Vec<Mapping>,
    /// framehop's view of the same.
    pub unwinder: UnwinderX86_64<Section>,
    /// framehop's cache of rules.
    pub cache: CacheX86_64,
}

impl AddressSpace {
    /// Reads the mappings of a live process.
    ///
    /// # Errors
    /// The error of the target's memory; the process may be gone.
    pub fn read(
        process: &LiveProcess,
        images: &mut Images,
    ) -> Result<Self, throughline_target::MemoryError> {
        let mappings = parse_maps(&process.maps()?).mappings;
        let mut space = Self {
            images: Vec::new(),
            anonymous: Vec::new(),
            mappings: Vec::new(),
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        };
        for group in mappings.chunk_by(same_file) {
            let Some(code) = group.iter().find(|mapping| mapping.permissions.execute) else {
                continue;
            };
            match code.path.as_deref() {
                Some(b"[vdso]") => space.add_vdso(process, code),
                Some(path) if path.starts_with(b"/") && code.inode != 0 => {
                    space.add_file(process.pid(), group, code, images);
                }
                _ => space.anonymous.extend(
                    group
                        .iter()
                        .filter(|m| m.permissions.execute)
                        .map(|m| (m.start, m.end)),
                ),
            }
        }
        space.mappings = mappings;
        Ok(space)
    }

    fn add_file(&mut self, pid: u32, group: &[Mapping], code: &Mapping, images: &mut Images) {
        let image = images.of_mapping(pid, code);
        let start = group.first().map_or(code.start, |m| m.start);
        let end = group.last().map_or(code.end, |m| m.end);
        let bias = image
            .as_ref()
            .ok()
            .and_then(|image| image.address_of_offset(code.offset))
            .map_or(start, |address| code.start.wrapping_sub(address));
        let path = code.path_lossy().unwrap_or_default();
        self.add(MappedImage {
            start,
            end,
            bias,
            image,
            path,
        });
    }

    fn add_vdso(&mut self, process: &LiveProcess, code: &Mapping) {
        const VDSO_BYTES_MAX: u64 = 1 << 16;
        let image = process
            .read_vec(code.start, code.size(), VDSO_BYTES_MAX)
            .map_err(|error| error.to_string())
            .and_then(|bytes| Image::parse(SharedBytes::from(bytes)))
            .map(Rc::new);
        let (start, end) = (code.start, code.end);
        self.add(MappedImage {
            start,
            end,
            bias: start,
            image,
            path: "[vdso]".to_owned(),
        });
    }

    fn add(&mut self, mapped: MappedImage) {
        if let Ok(image) = &mapped.image {
            self.unwinder.add_module(Module::new(
                mapped.path.clone(),
                mapped.start..mapped.end,
                mapped.bias,
                image.unwind_sections(),
            ));
        }
        self.images.push(mapped);
    }

    /// What lies at an address.
    #[must_use]
    pub fn place(&self, address: u64) -> Place<'_> {
        let after = self.images.partition_point(|image| image.start <= address);
        if let Some(image) = after.checked_sub(1).and_then(|i| self.images.get(i))
            && address < image.end
        {
            return Place::Image(image);
        }
        if self
            .anonymous
            .iter()
            .any(|&(start, end)| (start..end).contains(&address))
        {
            return Place::Anonymous;
        }
        Place::Unknown
    }

    /// Every mapped file.
    pub fn images(&self) -> impl Iterator<Item = &MappedImage> {
        self.images.iter()
    }

    /// Whether an address can be a return address: it follows a call in a file's code.
    #[must_use]
    pub fn can_return_to(&self, address: u64) -> bool {
        match self.place(address) {
            Place::Image(mapped) => mapped
                .image
                .as_ref()
                .is_ok_and(|image| image.follows_call(address.wrapping_sub(mapped.bias))),
            Place::Anonymous | Place::Unknown => false,
        }
    }

    /// Whether the executable mappings are the same, so that what is known of addresses stays true.
    #[must_use]
    pub fn same_code(&self, other: &Self) -> bool {
        let key = |space: &Self| {
            space
                .images
                .iter()
                .map(|m| (m.start, m.end, m.bias))
                .collect::<Vec<_>>()
        };
        key(self) == key(other)
            && self
                .images
                .iter()
                .zip(&other.images)
                .all(|(a, b)| a.path == b.path)
    }
}

/// Neighbouring mappings of one file; the loader leaves anonymous .bss behind the last, which ends a group.
fn same_file(a: &Mapping, b: &Mapping) -> bool {
    a.inode != 0
        && a.inode == b.inode
        && a.device == b.device
        && a.path == b.path
        && a.offset <= b.offset
}
