//! One view as an SVG file.
//!
//! The page writes the same bytes; what is changed here is changed in `web/src/svg.ts` too, and a test
//! compares the two.

use std::fmt::Write;

use throughline_profile::{FrameKind, Profile};

use crate::boxes::{Box, Tree, find, layout};
use crate::facts;
use crate::function::FunctionTable;
use crate::inverted::Inverted;
use crate::search::Found;
use crate::text::{markup, percent, visible, weight};
use crate::tree::{CallTree, GUESSED, INLINED};
use crate::view::{View, ViewError, ViewPlan, Weighed};

/// Width of the graph, px.
const WIDTH: f64 = 1200.0;
const MARGIN: u64 = 10;
/// Height of a row and of the box in it, px.
const ROW: u64 = 17;
const BOX: u64 = 16;
/// Height of the title's lines, px.
const HEADER: u64 = 62;
/// Height of a line of notes, px.
const LINE: u64 = 16;
/// Advance of a character in 11 px monospace, tenths of a pixel.
const CHARACTER: u64 = 67;
/// Room left and right of a box's text, tenths of a pixel.
const PADDING: u64 = 60;

/// Everything the writer of one SVG reads.
struct Drawing<'a> {
    functions: &'a FunctionTable,
    view: View,
    total: u64,
    found: Option<&'a Found>,
}

/// A view as one well-formed SVG document, whatever the names are.
///
/// Boxes narrower than half a pixel are left out. The ledger stands under the graph.
///
/// # Errors
/// [`ViewError`] when the search is no regular expression or the zoom path does not exist.
pub fn flame_svg(profile: &Profile, plan: &ViewPlan) -> Result<String, ViewError> {
    let functions = FunctionTable::new(profile);
    let weighed = Weighed::new(profile, plan.view);
    let tree = CallTree::new(profile, &weighed, functions.no_stack(), |frame| {
        functions.of_frame(frame)
    });
    let found = plan
        .pattern()?
        .map(|pattern| Found::new(&pattern, &functions, &tree));
    let drawing = Drawing {
        functions: &functions,
        view: plan.view,
        total: tree.total[0],
        found: found.as_ref(),
    };
    let headings = drawing.headings(&facts::title(profile), plan);
    let notes = facts::notes(profile, plan.view, &weighed);
    if plan.inverted {
        drawing.draw(&mut Inverted::new(&tree), plan, &headings, &notes)
    } else {
        drawing.draw(&mut &tree, plan, &headings, &notes)
    }
}

/// What a box looks like.
struct Look {
    name: String,
    fill: String,
    title: String,
    /// Further attributes: what a search does to the box.
    strength: &'static str,
}

impl Drawing<'_> {
    fn headings(&self, title: &str, plan: &ViewPlan) -> [String; 3] {
        let all = if self.view.is_time() {
            format!(
                "{} of {}",
                weight(self.total, true),
                self.view.denominator()
            )
        } else {
            format!(
                "{} {}",
                crate::text::grouped(self.total),
                self.view.denominator()
            )
        };
        let direction = if plan.inverted { ", inverted" } else { "" };
        let search = match (&self.found, &plan.search) {
            (Some(found), Some(text)) => format!(
                "Search {}: {} {}, {}, {}",
                visible(text),
                crate::text::grouped(found.places),
                if found.places == 1 { "place" } else { "places" },
                weight(found.weight, self.view.is_time()),
                percent(found.weight, self.total),
            ),
            _ => String::new(),
        };
        [title.to_owned(), format!("{all}{direction}"), search]
    }

    fn draw(
        &self,
        tree: &mut impl Tree,
        plan: &ViewPlan,
        headings: &[String; 3],
        notes: &[String],
    ) -> Result<String, ViewError> {
        let zoom = find(tree, self.functions, &plan.zoom)?;
        let boxes = layout(tree, zoom, WIDTH);
        let rows = boxes
            .iter()
            .map(|shown| u64::from(shown.row) + 1)
            .max()
            .unwrap_or(0);
        let width = WIDTH as u64 + 2 * MARGIN;
        let foot = HEADER + rows * ROW + LINE;
        let height = foot + notes.len() as u64 * LINE;
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"11\" fill=\"#1b1f24\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"37\">{}</text>\n<text x=\"{MARGIN}\" y=\"53\">{}</text>\n",
            markup(&headings[0]),
            markup(&headings[1]),
            markup(&headings[2]),
        );
        for shown in &boxes {
            self.put_box(&mut out, tree, shown);
        }
        for (at, note) in notes.iter().enumerate() {
            let y = foot + at as u64 * LINE;
            put(
                &mut out,
                format_args!("<text x=\"{MARGIN}\" y=\"{y}\">{}</text>\n", markup(note)),
            );
        }
        out.push_str("</svg>\n");
        Ok(out)
    }

    /// Name, fill, title and further attributes of a box.
    fn look(&self, tree: &impl Tree, shown: &Box) -> Look {
        let amount = format!(
            "{}, {} of {}",
            weight(shown.total, self.view.is_time()),
            percent(shown.total, self.total),
            self.view.denominator()
        );
        let key = match shown.node {
            None => {
                let title = format!("frames too narrow to draw: {amount}");
                return Look {
                    name: String::new(),
                    fill: "#eceef1".to_owned(),
                    title,
                    strength: "",
                };
            }
            Some(0) => {
                let (name, fill) = ("all".to_owned(), "#e3e6ea".to_owned());
                return Look {
                    name,
                    fill,
                    title: format!("all: {amount}"),
                    strength: "",
                };
            }
            Some(node) => tree.key(node),
        };
        let function = self.functions.get(key);
        let label = visible(&function.label);
        let (sign, words) = mark(shown.node.map_or(0, |node| tree.marks(node)));
        Look {
            name: format!("{sign}{label}"),
            fill: shade(function.kind, key),
            title: format!("{label} ({}{words}): {amount}", function.kind.as_str()),
            strength: match self.found {
                None => "",
                Some(found) if found.functions[key as usize] => {
                    " stroke=\"#111111\" stroke-width=\"1.5\""
                }
                Some(_) => " opacity=\"0.4\"",
            },
        }
    }

    fn put_box(&self, out: &mut String, tree: &impl Tree, shown: &Box) {
        let Look {
            name,
            fill,
            title,
            strength,
        } = self.look(tree, shown);
        let x = shown.left + MARGIN * 10;
        let y = HEADER + u64::from(shown.row) * ROW;
        // A gap of half a pixel parts neighbours; no box vanishes by it.
        let width = (shown.right - shown.left).saturating_sub(5).max(3);
        put(
            out,
            format_args!(
                "<g><title>{}</title><rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{BOX}\" fill=\"{fill}\"{strength}/>",
                markup(&title),
                tenths(x),
                tenths(width),
            ),
        );
        if let Some(text) = fitting(&name, width) {
            let (x, y) = (tenths(x + PADDING / 2), y + 12);
            put(
                out,
                format_args!("<text x=\"{x}\" y=\"{y}\">{}</text>", markup(&text)),
            );
        }
        out.push_str("</g>\n");
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = out.write_fmt(text);
}

fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// Signs before the name, and words in its title.
fn mark(marks: u8) -> (&'static str, &'static str) {
    match (marks & INLINED != 0, marks & GUESSED != 0) {
        (false, false) => ("", ""),
        (true, false) => ("\u{21b3} ", ", inlined"),
        (false, true) => ("? ", ", guessed"),
        (true, true) => ("\u{21b3}? ", ", inlined, guessed"),
    }
}

/// As much of a name as fits a box; `None` when that is too little to be read.
fn fitting(name: &str, width: u64) -> Option<String> {
    let room = (width.saturating_sub(PADDING) / CHARACTER) as usize;
    if room < 3 || name.is_empty() {
        return None;
    }
    if name.chars().count() <= room {
        return Some(name.to_owned());
    }
    Some(name.chars().take(room - 1).chain(['\u{2026}']).collect())
}

/// Tints of the Okabe-Ito palette, which people with any colour vision can tell apart.
fn tint(kind: FrameKind) -> [u32; 3] {
    match kind {
        FrameKind::Native => [0xf3, 0xc8, 0x83],
        FrameKind::Kernel => [0xdd, 0xa6, 0xc4],
        FrameKind::Lua => [0x7b, 0xbf, 0xec],
        FrameKind::LuaBuiltin => [0xae, 0xd8, 0xf3],
        FrameKind::Interpreter => [0x9d, 0xb0, 0xe0],
        FrameKind::Jit => [0x62, 0xbd, 0x9c],
        FrameKind::OtherJit => [0xef, 0xe5, 0x7d],
        FrameKind::Marker => [0xc9, 0xcc, 0xd1],
    }
}

/// One of three shades of a kind's tint, so that neighbours differ.
fn shade(kind: FrameKind, function: u32) -> String {
    let strength = 100 - 4 * (function % 3);
    let [red, green, blue] = tint(kind).map(|part| part * strength / 100);
    format!("#{red:02x}{green:02x}{blue:02x}")
}
