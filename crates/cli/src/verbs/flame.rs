//! `throughline flame`: a graph of a capture, as a page, an SVG or folded text.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde::Serialize;
use throughline_profile::{Ledger, Profile, escape};
use throughline_report::{FlamePlan, ViewPlan, flame_html, flame_svg, folded};

use crate::args::FlameArgs;
use crate::failure::Outcome;
use crate::output::{self, TOOL, Voice};
use crate::verbs::{input, view};

/// Where the page goes when nothing is said.
const DEFAULT_PAGE: &str = "flame.html";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    Html,
    Svg,
    Folded,
}

/// What to write, and where.
struct Plan {
    files: Vec<(Format, PathBuf)>,
    page: FlamePlan,
    view: ViewPlan,
    voice: Voice,
}

impl Plan {
    fn new(args: &FlameArgs) -> Result<Self> {
        let page = match &args.output {
            None if args.svg.is_none() && args.folded.is_none() => Some(DEFAULT_PAGE.into()),
            other => other.clone(),
        };
        let files: Vec<_> = [
            (Format::Html, page),
            (Format::Svg, args.svg.clone()),
            (Format::Folded, args.folded.clone()),
        ]
        .into_iter()
        .filter_map(|(format, path)| Some((format, path?)))
        .collect();
        let voice = Voice::from(&args.voice);
        let to_stdout = files
            .iter()
            .filter(|(_, path)| output::is_stdout(path))
            .count();
        ensure!(
            to_stdout + usize::from(voice.json) <= 1,
            "standard output can take one result: give the others a file"
        );
        Ok(Self {
            files,
            page: FlamePlan {
                title: args.title.clone(),
            },
            view: ViewPlan::from(&args.view),
            voice,
        })
    }

    fn render(&self, format: Format, profile: &Profile) -> Result<String> {
        if format == Format::Html {
            view::must_hold_samples(profile)?;
        } else {
            view::must_be_seen(profile, self.view.view)?;
        }
        Ok(match format {
            Format::Html => flame_html(profile, &self.page),
            Format::Svg => flame_svg(profile, &self.view)?,
            Format::Folded => folded(profile, &self.view)?,
        })
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool: &'static str,
    capture: u32,
    files: &'a [WrittenFile<'a>],
    ledger: &'a Ledger,
}

#[derive(Serialize)]
struct WrittenFile<'a> {
    format: Format,
    #[serde(serialize_with = "output::lossy")]
    path: &'a Path,
    bytes: usize,
}

pub fn run(args: &FlameArgs) -> Result<Outcome> {
    let plan = Plan::new(args)?;
    let loaded = input::load(&args.capture)?;
    let profile = &loaded.profile;
    // All are made before any is written: a wrong search leaves no file.
    let contents = plan
        .files
        .iter()
        .map(|(format, _)| plan.render(*format, profile))
        .collect::<Result<Vec<String>>>();
    let contents = input::or_damage(contents, &args.capture.case, &loaded.damage)?;
    let mut written = Vec::new();
    for ((format, path), content) in plan.files.iter().zip(&contents) {
        output::file(path, content)?;
        written.push(WrittenFile {
            format: *format,
            path,
            bytes: content.len(),
        });
    }
    if plan.voice.json {
        output::json(&Document {
            schema: "flame/1",
            tool: TOOL,
            capture: profile.capture.number,
            files: &written,
            ledger: &profile.ledger,
        })?;
    } else {
        for file in written.iter().filter(|file| !output::is_stdout(file.path)) {
            let path = file.path.display().to_string();
            plan.voice.remark(&format!(
                "wrote {}, {} kB",
                escape(&path),
                file.bytes.div_ceil(1000)
            ));
        }
    }
    Ok(input::remarks(profile, &loaded.damage, plan.voice))
}
