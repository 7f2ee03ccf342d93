//! Native frames of one process, named, each address once.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, Module, Profile};
use throughline_symbols::{Lookup, NameReason, PerfMap, SourceLine, open_file_below};
use throughline_units::Nanos;

use crate::address_space::{AddressSpace, MappedImage, Place};

/// A perf map grows while the program compiles; for an address without a name it is looked at again at most this often. A look at
/// one that has not grown costs five system calls.
const PERF_MAP_TRUSTED: Nanos = Nanos(50_000_000);

/// Frames by address; one address is several frames where calls were inlined (innermost first).
#[derive(Default)]
pub struct NativeNames {
    frames: FxHashMap<u64, Rc<[FrameId]>>,
    perf_map: Option<GrowingPerfMap>,
    perf_map_read: Option<Nanos>,
}

/// Bytes of a perf map that are read at one look, which delays the ring by about 0.1 s.
const PERF_MAP_LOOK_BYTES_MAX: u64 = 16 << 20;
/// A perf map is believed up to this size and this number of stretches, which together bound the recorder's memory. A large
/// Node service writes 20 MB.
const PERF_MAP_BYTES_MAX: u64 = 64 << 20;
const PERF_MAP_ENTRIES_MAX: usize = 500_000;

struct GrowingPerfMap {
    root: PathBuf,
    path: PathBuf,
    file: File,
    inode: u64,
    owner: u32,
    read: u64,
    map: PerfMap,
}

impl GrowingPerfMap {
    /// Opens the perf map of a process in the process's own file system and pid namespace.
    fn open(pid: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let words = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.split_whitespace())
        };
        let own_pid = words("NSpid:")?.last()?;
        // Real and effective user: a daemon may have written it before it changed to the one that it runs as.
        let users: Vec<u32> = words("Uid:")?.flat_map(str::parse).collect();
        Self::open_at(
            format!("/proc/{pid}/root").into(),
            format!("/tmp/perf-{own_pid}.map").into(),
            &users,
        )
    }

    /// Anybody may put a file into `/tmp`: only one of the process's own user, or of root, is believed.
    fn open_at(root: PathBuf, path: PathBuf, users: &[u32]) -> Option<Self> {
        let file = open_file_below(&root, &path).ok()?;
        let facts = file.metadata().ok()?;
        if facts.uid() != 0 && !users.contains(&facts.uid()) {
            return None;
        }
        let (inode, owner) = (facts.ino(), facts.uid());
        Some(Self {
            root,
            path,
            file,
            inode,
            owner,
            read: 0,
            map: PerfMap::new(),
        })
    }

    /// Reads what was written since. A map that was written anew (as the JVM's `jcmd Compiler.perfmap` does) is read from its start.
    fn read_more(&mut self) {
        let now = open_file_below(&self.root, &self.path);
        if let Ok((file, facts)) = now.and_then(|file| {
            let facts = file.metadata()?;
            Ok((file, facts))
        }) && facts.uid() == self.owner
            && (facts.ino() != self.inode || facts.len() < self.read)
        {
            (self.file, self.inode, self.read) = (file, facts.ino(), 0);
            self.map = PerfMap::new();
        }
        if self.file.seek(SeekFrom::Start(self.read)).is_err() {
            return;
        }
        let mut chunk = vec![0; 1 << 16];
        let look_end = (self.read + PERF_MAP_LOOK_BYTES_MAX).min(PERF_MAP_BYTES_MAX);
        while self.read < look_end
            && self.map.len() < PERF_MAP_ENTRIES_MAX
            && let Ok(read @ 1..) = self.file.read(&mut chunk)
        {
            self.read += read as u64;
            self.map.push(&chunk[..read]);
        }
    }
}

impl NativeNames {
    /// Forgets everything: the process maps other code now.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The frames at an address, innermost first.
    pub fn frames(
        &mut self,
        profile: &mut Profile,
        space: &AddressSpace,
        pid: u32,
        address: u64,
        now: Nanos,
    ) -> Rc<[FrameId]> {
        if let Some(known) = self.frames.get(&address) {
            return known.clone();
        }
        let frames: Rc<[FrameId]> = match space.place(address) {
            Place::Image(mapped) => image_frames(profile, mapped, address).into(),
            Place::Anonymous => {
                let frame = self.anonymous_frame(profile, pid, address, now);
                if profile.frames.get(frame).kind == FrameKind::Marker {
                    // Not remembered: it may get a name when the perf map grows.
                    return Rc::new([frame]);
                }
                Rc::new([frame])
            }
            Place::Unknown => Rc::new([nameless(
                profile,
                "[unmapped address]",
                NameReason::AnonymousMemory.as_str(),
            )]),
        };
        self.frames.insert(address, frames.clone());
        frames
    }

    fn anonymous_frame(
        &mut self,
        profile: &mut Profile,
        pid: u32,
        address: u64,
        now: Nanos,
    ) -> FrameId {
        let found = |map: &Option<GrowingPerfMap>| match map.as_ref()?.map.lookup(address) {
            Lookup::Named { function, .. } => Some(function.display),
            Lookup::Unnamed { .. } => None,
        };
        let mut name = found(&self.perf_map);
        if name.is_none()
            && self
                .perf_map_read
                .is_none_or(|read| now - read > PERF_MAP_TRUSTED)
        {
            self.perf_map_read = Some(now);
            if self.perf_map.is_none() {
                self.perf_map = GrowingPerfMap::open(pid);
            }
            if let Some(map) = &mut self.perf_map {
                map.read_more();
            }
            name = found(&self.perf_map);
        }
        let Some(name) = name else {
            return nameless(
                profile,
                "[anonymous code]",
                NameReason::AnonymousMemory.as_str(),
            );
        };
        let frame = Frame::new(FrameKind::OtherJit, profile.strings.intern(&name));
        profile.frames.intern(frame)
    }
}

fn nameless(profile: &mut Profile, name: &str, reason: &str) -> FrameId {
    let mut frame = Frame::new(FrameKind::Marker, profile.strings.intern(name));
    frame.name_reason = Some(profile.strings.intern(reason));
    profile.frames.intern(frame)
}

fn image_frames(profile: &mut Profile, mapped: &MappedImage, address: u64) -> Vec<FrameId> {
    let own_address = address.wrapping_sub(mapped.bias);
    let file_name = mapped.path.rsplit('/').next().unwrap_or(&mapped.path);
    let path = profile.strings.intern(&mapped.path);
    let (lookup, build_id) = match mapped.image.as_ref().map(|image| image.symbols()) {
        Ok(Ok(symbols)) => (
            symbols.lookup(own_address),
            symbols
                .build_id()
                .map(|id| profile.strings.intern(&id.to_string())),
        ),
        Ok(Err(_)) | Err(_) => (
            Lookup::Unnamed {
                function_start: None,
                reason: NameReason::Unreadable,
            },
            None,
        ),
    };
    let module = profile.modules.intern(Module { path, build_id });
    let mut base = Frame::new(FrameKind::Native, path);
    base.module = Some(module);
    base.address = own_address;
    let place = |profile: &mut Profile, frame: &mut Frame, source: Option<&SourceLine>| {
        if let Some(source) = source {
            frame.source = Some(profile.strings.intern(&source.file));
            frame.line = source.line.unwrap_or(0);
        }
    };
    let mut frames = Vec::new();
    if let Lookup::Named {
        inlined, source, ..
    } = &lookup
    {
        for call in inlined {
            let mut frame = base.clone();
            frame.name = profile.strings.intern(&call.function.display);
            frame.inlined = true;
            place(profile, &mut frame, call.source.as_ref());
            frames.push(profile.frames.intern(frame));
        }
        place(profile, &mut base, source.as_ref());
    }
    base.name = profile
        .strings
        .intern(&lookup.label(file_name, own_address));
    base.name_reason = lookup
        .reason()
        .map(|reason| profile.strings.intern(reason.as_str()));
    frames.push(profile.frames.intern(base));
    frames
}
