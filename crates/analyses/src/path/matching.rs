//! Which functions a question means.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use throughline_profile::{Frame, FrameId, FrameKind, Function, Profile, StackId};

use super::{module_of, source_of};

/// How functions were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// They are called exactly so.
    Name,
    /// They are defined there, or hold that line.
    SourceLine,
    /// Their name or place holds the text.
    Substring,
}

/// A function that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Its name.
    pub function: String,
    /// What sort of code.
    pub kind: FrameKind,
    /// Chunk name and line of definition, `@plugin.lua:578`.
    pub source: Option<String>,
    /// Why there is no source.
    pub source_reason: Option<&'static str>,
    /// File name of its module; only machine code has one.
    pub module: Option<String>,
    /// Why there is no module.
    pub module_reason: Option<&'static str>,
    /// Distinct stacks that hold it.
    pub stacks: u64,
    /// Samples that hold it.
    pub samples: u64,
}

pub(super) struct Found {
    pub(super) by: MatchedBy,
    pub(super) functions: BTreeSet<Function>,
    pub(super) frames: BTreeSet<FrameId>,
}

/// The functions with samples that a question means; the first way of reading it that finds any decides.
pub(super) fn find(profile: &Profile, asked: &str, stacks: &BTreeMap<StackId, u64>) -> Found {
    let mut seen: BTreeSet<FrameId> = BTreeSet::new();
    for &stack in stacks.keys() {
        seen.extend(profile.stacks.frames_leaf_first(stack));
    }
    let mut found = Found {
        by: MatchedBy::Substring,
        functions: BTreeSet::new(),
        frames: BTreeSet::new(),
    };
    if asked.is_empty() {
        return found;
    }
    let place = asked
        .rsplit_once(':')
        .and_then(|(source, line)| Some((source, line.parse::<u32>().ok()?)));
    let is_named = |frame: &Frame| profile.strings.get(frame.name) == asked;
    let starts_at = |frame: &Frame| {
        place.is_some_and(|(source, line)| {
            frame.first_line == line && is_source(profile, frame, source)
        })
    };
    let holds_line = |frame: &Frame| {
        place.is_some_and(|(source, line)| frame.line == line && is_source(profile, frame, source))
    };
    let contains = |frame: &Frame| {
        profile.strings.get(frame.name).contains(asked)
            || source_of(profile, frame, frame.first_line)
                .0
                .is_some_and(|source| source.contains(asked))
    };
    type Accepts<'a> = &'a dyn Fn(&Frame) -> bool;
    let ways: [(MatchedBy, Accepts<'_>); 4] = [
        (MatchedBy::Name, &is_named),
        (MatchedBy::SourceLine, &starts_at),
        (MatchedBy::SourceLine, &holds_line),
        (MatchedBy::Substring, &contains),
    ];
    let frame_of = |id: &FrameId| profile.frames.get(*id);
    for (by, accepts) in ways {
        found.by = by;
        found.functions = seen
            .iter()
            .map(frame_of)
            .filter(|frame| frame.kind != FrameKind::Marker && accepts(frame))
            .map(Function::of)
            .collect();
        if !found.functions.is_empty() {
            break;
        }
    }
    found.frames = seen
        .into_iter()
        .filter(|id| found.functions.contains(&Function::of(frame_of(id))))
        .collect();
    found
}

/// Whether a frame is of a source: its whole name, or the last parts of its path.
fn is_source(profile: &Profile, frame: &Frame, source: &str) -> bool {
    let Some(own) = frame.source.map(|own| profile.strings.get(own)) else {
        return false;
    };
    let bare = own.strip_prefix(['@', '=']).unwrap_or(own);
    own == source
        || bare == source
        || bare
            .strip_suffix(source)
            .is_some_and(|before| before.ends_with('/') && !source.is_empty())
}

impl Found {
    /// The functions with their cost, the most expensive first.
    pub(super) fn rows(&self, profile: &Profile, stacks: &BTreeMap<StackId, u64>) -> Vec<Match> {
        let mut costs: BTreeMap<Function, (u64, u64)> = BTreeMap::new();
        for (&stack, &samples) in stacks {
            let held: BTreeSet<Function> = profile
                .stacks
                .frames_leaf_first(stack)
                .filter(|id| self.frames.contains(id))
                .map(|id| Function::of(profile.frames.get(id)))
                .collect();
            for function in held {
                let (count, sum) = costs.entry(function).or_default();
                *count += 1;
                *sum += samples;
            }
        }
        let mut rows: Vec<Match> = costs
            .into_iter()
            .map(|(function, (stacks, samples))| row(profile, function, stacks, samples))
            .collect();
        rows.sort_by(|a, b| {
            (Reverse(a.samples), &a.function, &a.source).cmp(&(
                Reverse(b.samples),
                &b.function,
                &b.source,
            ))
        });
        rows
    }
}

fn row(profile: &Profile, function: Function, stacks: u64, samples: u64) -> Match {
    let mut frame = Frame::new(function.kind, function.name);
    frame.source = function.source;
    let (source, source_reason) = source_of(profile, &frame, function.first_line);
    let module = module_of(profile, function);
    Match {
        function: profile.strings.get(function.name).to_owned(),
        kind: function.kind,
        source,
        source_reason,
        module_reason: module.is_none().then_some("not mapped from a file"),
        module,
        stacks,
        samples,
    }
}
