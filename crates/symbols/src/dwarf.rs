//! Inlined calls and lines from DWARF, read in process and only when first asked for.
//!
//! A unit is read when an address in it is asked about, and kept. Two bounds hold, both counted in
//! bytes of DWARF read ([`crate::metered`]): what one question may read, so that a hostile file whose parts refer
//! to each other in circles ends in an error, and what may be kept, beyond which everything is
//! dropped and read again on demand.

mod sections;

use std::sync::Arc;
use std::sync::Mutex;

use addr2line::{Context, Frame};
use self_cell::self_cell;

use crate::bytes::SharedBytes;
use crate::demangle;
use crate::elf::ElfError;
use crate::lookup::{InlinedCall, Name, SourceLine};
use crate::metered::{Meter, Metered};
use sections::Sections;

/// What DWARF says about one address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DwarfAnswer {
    /// Innermost first.
    pub inlined: Vec<InlinedCall>,
    /// The function that holds the machine code.
    pub function: Option<Name>,
    /// The line in it.
    pub source: Option<SourceLine>,
}

/// Whether lines and inlined calls can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebugInfo {
    /// Neither the file nor its debug file has `.debug_info`, or the caller declined it.
    Absent,
    /// There is some; nothing has been asked yet.
    NotReadYet,
    /// Read without an error so far.
    Readable,
    /// Damaged, larger than the caller allows, or beyond a bound.
    Damaged,
}

self_cell!(
    struct Reader {
        owner: Owner,
        #[not_covariant]
        dependent: Units,
    }
);

struct Owner {
    sections: Arc<Sections>,
    meter: Meter,
}

type Units<'a> = Context<Metered<'a>>;

/// The debug information of one module.
#[derive(Debug)]
pub(crate) struct Dwarf {
    files: Files,
    max_unpacked_bytes: usize,
    /// Bytes of DWARF whose units may be kept.
    max_kept_bytes: u64,
    state: Mutex<State>,
}

/// Where the sections come from.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub main: SharedBytes,
    /// What several debug files share (`.gnu_debugaltlink`).
    pub alternate: Option<SharedBytes>,
}

enum State {
    NotReadYet,
    Ready(Box<Ready>),
    Failed,
}

struct Ready {
    sections: Arc<Sections>,
    reader: Reader,
    largest_answer: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotReadYet => "NotReadYet",
            Self::Ready(_) => "Ready",
            Self::Failed => "Failed",
        })
    }
}

impl Dwarf {
    pub fn new(files: Files, max_unpacked_bytes: usize, max_kept_bytes: u64) -> Self {
        Self {
            files,
            max_unpacked_bytes,
            max_kept_bytes,
            state: Mutex::new(State::NotReadYet),
        }
    }

    pub fn status(&self) -> DebugInfo {
        match &*self.lock() {
            State::NotReadYet => DebugInfo::NotReadYet,
            State::Ready(_) => DebugInfo::Readable,
            State::Failed => DebugInfo::Damaged,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic elsewhere leaves the units as they were: they only grow.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What is known about an address; nothing on damage.
    pub fn answer(&self, address: u64) -> DwarfAnswer {
        let mut state = self.lock();
        if matches!(*state, State::NotReadYet) {
            *state = self
                .open()
                .map_or(State::Failed, |ready| State::Ready(Box::new(ready)));
        }
        let State::Ready(ready) = &mut *state else {
            return DwarfAnswer::default();
        };
        let answer = ready.answer(address);
        let kept = self.max_kept_bytes.max(2 * ready.largest_answer);
        if ready.reader.borrow_owner().meter.total() > kept {
            *state = match Ready::new(ready.sections.clone()) {
                Some(fresh) => State::Ready(Box::new(fresh)),
                None => State::Failed,
            };
        }
        answer
    }

    fn open(&self) -> Option<Ready> {
        let sections = Sections::unpack(&self.files, self.max_unpacked_bytes).ok()?;
        Ready::new(Arc::new(sections))
    }
}

impl Ready {
    fn new(sections: Arc<Sections>) -> Option<Self> {
        let owner = Owner {
            sections: sections.clone(),
            meter: Meter::default(),
        };
        let reader = Reader::try_new(owner, |owner| {
            owner.meter.allow(owner.sections.bytes_to_answer());
            let mut dwarf = owner.sections.dwarf(&owner.meter);
            // Link-time optimisation lets thousands of units share one large table.
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            Context::from_dwarf(dwarf)
        });
        Some(Self {
            sections,
            reader: reader.ok()?,
            largest_answer: 0,
        })
    }

    fn answer(&mut self, address: u64) -> DwarfAnswer {
        let meter = &self.reader.borrow_owner().meter;
        meter.allow(self.sections.bytes_to_answer());
        let before = meter.total();
        let answer = self
            .reader
            .with_dependent(|_, units| answer(units, address))
            .unwrap_or_default();
        let cost = self.reader.borrow_owner().meter.total() - before;
        self.largest_answer = self.largest_answer.max(cost);
        answer
    }
}

fn answer(units: &Units<'_>, address: u64) -> Result<DwarfAnswer, gimli::Error> {
    let mut frames = units.find_frames(address).skip_all_loads()?;
    let mut calls = Vec::new();
    // Nesting is bounded by the bytes of one function's tree.
    while let Some(frame) = frames.next()? {
        calls.push((name(&frame)?, source(&frame)));
    }
    let mut answer = DwarfAnswer::default();
    if let Some((function, source)) = calls.pop() {
        answer.function = function;
        answer.source = source;
    }
    answer.inlined = calls
        .into_iter()
        .map(|(function, source)| InlinedCall {
            function: function
                .unwrap_or_else(|| demangle::name_of(b"(inlined function without a name)")),
            source,
        })
        .collect();
    Ok(answer)
}

fn name(frame: &Frame<'_, Metered<'_>>) -> Result<Option<Name>, gimli::Error> {
    let Some(function) = &frame.function else {
        return Ok(None);
    };
    let raw = function.raw_name()?;
    Ok(Some(demangle::symbol_name(raw.as_bytes())))
}

fn source(frame: &Frame<'_, Metered<'_>>) -> Option<SourceLine> {
    let location = frame.location.as_ref()?;
    let file = location.file?;
    let file = file.get(..Name::MAX_BYTES).unwrap_or(file);
    Some(SourceLine {
        file: Arc::from(file),
        line: location.line,
    })
}

/// Why sections could not be unpacked.
#[derive(Debug)]
pub(crate) enum OpenError {
    Elf,
    Packed,
}

impl From<ElfError> for OpenError {
    fn from(_: ElfError) -> Self {
        Self::Elf
    }
}
