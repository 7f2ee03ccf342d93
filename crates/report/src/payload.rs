//! The page's data: `base64(gzip(u32 length, JSON head, columns))`.
//!
//! The head holds what is small or text: names, functions, capture facts, ledgers. Behind it come, for
//! each view in the head's order, columns of unsigned LEB128 numbers. First one column each, with one number a
//! node in preorder without the root: function; levels to go up from the node before (0: its child);
//! own weight; marks. Then one column each, with one number a line: function, line, own weight,
//! inclusive weight. Starts, totals and subtree ends follow from these; the page computes them.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use rustc_hash::FxHashMap;
use serde::Serialize;
use throughline_profile::{Ledger, Profile, StringId};

use crate::function::FunctionTable;
use crate::places::{self, LineWeight};
use crate::tree::CallTree;
use crate::view::{Amount, View, Weighed};

/// Name and version of the head's format.
const SCHEMA: &str = "throughline.flame/1";

#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    tool: &'static str,
    title: &'a str,
    /// Capture facts, name and text.
    facts: Vec<(&'static str, String)>,
    /// Wall-clock time at the start, ms since 1970; 0 when not known.
    started_unix_ms: u64,
    warnings: Vec<String>,
    strings: Vec<&'a str>,
    functions: Functions,
    views: Vec<ViewHead<'a>>,
}

/// The function table by column. Numbers are places in `strings`, -1 for none.
#[derive(Serialize, Default)]
struct Functions {
    label: Vec<i64>,
    kind: Vec<&'static str>,
    module: Vec<i64>,
    source: Vec<i64>,
    first_line: Vec<u32>,
    name_reason: Vec<i64>,
}

#[derive(Serialize)]
struct ViewHead<'a> {
    view: View,
    denominator: &'static str,
    is_time: bool,
    recorded: bool,
    nodes: u32,
    lines: usize,
    all: Amount,
    preempted: Amount,
    runnable_ns: u64,
    ledger: &'a Ledger,
    ledger_of_all: bool,
    with_lua: Amount,
    without_lua: &'a BTreeMap<&'static str, Amount>,
    /// The same as sentences, for the foot of an SVG.
    notes: Vec<String>,
}

struct ViewData {
    view: View,
    weighed: Weighed,
    tree: CallTree,
    lines: Vec<LineWeight>,
}

/// The payload of a page, ready to stand in markup: base64 holds no `<`.
pub(crate) fn encode(profile: &Profile, title: &str) -> String {
    let functions = FunctionTable::new(profile);
    let views: Vec<_> = View::ALL
        .into_iter()
        .map(|view| {
            let weighed = Weighed::new(profile, view);
            let tree = CallTree::new(profile, &weighed, functions.no_stack(), |frame| {
                functions.of_frame(frame)
            });
            let lines = places::lines(profile, &functions, &weighed);
            ViewData {
                view,
                weighed,
                tree,
                lines,
            }
        })
        .collect();
    let head = head(profile, title, &functions, &views);
    // Plain strings, numbers and maps with string keys always serialise.
    let json = serde_json::to_vec(&head).unwrap_or_default();
    let mut raw = Vec::with_capacity(json.len() + 4);
    raw.extend_from_slice(&(json.len() as u32).to_le_bytes());
    raw.extend_from_slice(&json);
    for data in &views {
        put_columns(&mut raw, data);
    }
    STANDARD.encode(gzip(&raw))
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    // No time stamp: equal profiles make equal pages.
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::new(6));
    // Writing to memory cannot fail.
    let _ = encoder.write_all(raw);
    encoder.finish().unwrap_or_default()
}

fn head<'a>(
    profile: &'a Profile,
    title: &'a str,
    functions: &'a FunctionTable,
    views: &'a [ViewData],
) -> Head<'a> {
    let mut strings = Strings::default();
    let mut table = Functions::default();
    let place = |strings: &mut Strings<'a>, id: Option<StringId>| {
        id.map_or(-1, |id| strings.place(profile.strings.get(id)))
    };
    for row in functions.rows() {
        table.label.push(strings.place(&row.label));
        table.kind.push(row.kind.as_str());
        table.module.push(place(&mut strings, row.module));
        table.source.push(place(&mut strings, row.source));
        table.first_line.push(row.first_line);
        table.name_reason.push(place(&mut strings, row.name_reason));
    }
    Head {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION"),
        title,
        facts: crate::facts::capture(profile),
        started_unix_ms: profile.capture.started_unix_ns / 1_000_000,
        warnings: crate::facts::warnings(
            profile,
            views.iter().map(|data| data.weighed.all.samples),
        ),
        strings: strings.list,
        functions: table,
        views: views.iter().map(|data| view_head(profile, data)).collect(),
    }
}

fn view_head<'a>(profile: &'a Profile, data: &'a ViewData) -> ViewHead<'a> {
    ViewHead {
        view: data.view,
        denominator: data.view.denominator(),
        is_time: data.view.is_time(),
        recorded: data.view.recorded(profile),
        nodes: data.tree.len() - 1,
        lines: data.lines.len(),
        all: data.weighed.all,
        preempted: data.weighed.preempted,
        runnable_ns: data.weighed.runnable_ns,
        ledger: data.view.ledger(profile),
        ledger_of_all: data.view.ledger_is_of_all(profile),
        with_lua: data.weighed.with_lua,
        without_lua: &data.weighed.without_lua,
        notes: crate::facts::notes(profile, data.view, &data.weighed),
    }
}

/// Distinct strings of the head.
#[derive(Default)]
struct Strings<'a> {
    list: Vec<&'a str>,
    index: FxHashMap<&'a str, i64>,
}

impl<'a> Strings<'a> {
    fn place(&mut self, text: &'a str) -> i64 {
        *self.index.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() as i64 - 1
        })
    }
}

fn put_columns(out: &mut Vec<u8>, data: &ViewData) {
    let tree = &data.tree;
    let nodes = 1..tree.len() as usize;
    nodes.clone().for_each(|at| put(out, tree.key[at].into()));
    nodes
        .clone()
        .for_each(|at| put(out, (tree.depth[at - 1] + 1 - tree.depth[at]).into()));
    nodes.clone().for_each(|at| put(out, tree.own[at]));
    nodes.for_each(|at| put(out, tree.marks[at].into()));
    data.lines
        .iter()
        .for_each(|row| put(out, row.function.into()));
    data.lines.iter().for_each(|row| put(out, row.line.into()));
    data.lines.iter().for_each(|row| put(out, row.own));
    data.lines.iter().for_each(|row| put(out, row.inclusive));
}

/// One number as unsigned LEB128.
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
