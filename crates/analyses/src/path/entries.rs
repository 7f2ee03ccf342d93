//! Where the phases began in which a function runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use throughline_profile::{Frame, FrameId, FrameKind, Profile};

use super::source_of;
use crate::share;

/// One way into a function: a phase, and the line at which the phase's first function left for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The outermost Lua function of the phase; nginx: the `*_by_lua` chunk.
    pub function: String,
    /// Its chunk and line of definition.
    pub source: Option<String>,
    /// Why there is no source.
    pub source_reason: Option<&'static str>,
    /// The function that it called on the way (itself, when it called the match), with the line that was running: `http_access_phase @init.lua:66`.
    pub at: Option<String>,
    /// Why there is none.
    pub at_reason: Option<&'static str>,
    /// The C function of a module that runs the phase.
    pub handler: Option<String>,
    /// Why there is none.
    pub handler_reason: Option<&'static str>,
    /// The nginx function, other than filters, from which the handler was called: it tells apart the calls of one filter.
    pub caller: Option<String>,
    /// Why there is none.
    pub caller_reason: Option<&'static str>,
    /// Samples that came this way.
    pub samples: u64,
    /// Their share of the inclusive samples.
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    function: String,
    source: Option<String>,
    source_reason: Option<&'static str>,
    at: Option<String>,
    handler: Option<String>,
    caller: Option<String>,
}

/// Samples by entry.
#[derive(Default)]
pub(super) struct Entries {
    ways: BTreeMap<Way, u64>,
    pub(super) without_lua: u64,
}

impl Entries {
    /// Adds a sample; `outwards` goes from the outermost match to the root.
    pub(super) fn add(&mut self, profile: &Profile, outwards: &[FrameId]) {
        match way(profile, outwards) {
            Some(way) => *self.ways.entry(way).or_default() += 1,
            None => self.without_lua += 1,
        }
    }

    /// The entries, the most expensive first.
    pub(super) fn rows(&self, inclusive: u64) -> Vec<Entry> {
        let mut rows: Vec<Entry> = self
            .ways
            .iter()
            .map(|(way, &samples)| Entry {
                function: way.function.clone(),
                source: way.source.clone(),
                source_reason: way.source_reason,
                at_reason: way
                    .at
                    .is_none()
                    .then_some("it is the phase's first function"),
                at: way.at.clone(),
                handler_reason: way
                    .handler
                    .is_none()
                    .then_some("no C function of a Lua module that has a name runs it"),
                handler: way.handler.clone(),
                caller_reason: way
                    .caller
                    .is_none()
                    .then_some("no nginx function with a name called the handler"),
                caller: way.caller.clone(),
                samples,
                share: share(samples, inclusive),
            })
            .collect();
        rows.sort_by_key(|row| Reverse(row.samples));
        rows
    }
}

fn way(profile: &Profile, outwards: &[FrameId]) -> Option<Way> {
    let frames: Vec<&Frame> = outwards.iter().map(|&id| profile.frames.get(id)).collect();
    // A phase may run inside another one (a body filter inside of ngx.say), so it ends at the next code of nginx.
    let end = frames
        .iter()
        .position(|frame| is_nginx(profile, frame))
        .filter(|&end| frames.iter().take(end).any(|frame| frame.kind.is_lua()))
        .unwrap_or(frames.len());
    let (inside, outside) = frames.split_at(end);
    let lua: Vec<&Frame> = inside
        .iter()
        .copied()
        .filter(|frame| frame.kind.is_lua())
        .collect();
    let phase = lua.last()?;
    let name = |frame: &Frame| profile.strings.get(frame.name).to_owned();
    let (source, source_reason) = source_of(profile, phase, phase.first_line);
    // The line from which the phase's first function left: in the function that it called, which may call the match from many lines.
    let at = match lua.len() {
        0 | 1 => None,
        2 => Some(phase),
        count => lua.get(count - 2),
    }
    .map(|frame| match source_of(profile, frame, frame.line).0 {
        Some(line) => format!("{} {line}", name(frame)),
        None => name(frame),
    });
    let named = |frame: &&&Frame| frame.name_reason.is_none();
    let handler = outside
        .iter()
        .filter(named)
        .find(|frame| name(frame).contains("_lua_"));
    let caller = outside
        .iter()
        .filter(named)
        .map(|frame| name(frame))
        .find(|name| {
            name.starts_with("ngx_") && !name.contains("filter") && !name.contains("_lua_")
        });
    Some(Way {
        function: name(phase),
        source,
        source_reason,
        at,
        handler: handler.map(|frame| name(frame)),
        caller,
    })
}

/// Code of nginx or of one of its modules.
fn is_nginx(profile: &Profile, frame: &Frame) -> bool {
    frame.kind == FrameKind::Native
        && frame.module.is_some_and(|module| {
            let path = profile.strings.get(profile.modules.get(module).path);
            let file = path.rsplit('/').next().unwrap_or(path);
            ["nginx", "openresty", "ngx_"]
                .iter()
                .any(|prefix| file.starts_with(prefix))
        })
}
