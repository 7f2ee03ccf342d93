//! `throughline export`: a capture in another tool's format.

use anyhow::Result;
use serde::Serialize;
use throughline_profile::Ledger;
use throughline_report::{ViewPlan, folded};

use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Outcome;
use crate::output::{self, TOOL, Voice};
use crate::verbs::{input, view};

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool: &'static str,
    capture: u32,
    format: &'static str,
    #[serde(serialize_with = "output::lossy")]
    path: &'a std::path::Path,
    bytes: usize,
    ledger: &'a Ledger,
}

pub fn run(args: &ExportArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    anyhow::ensure!(
        !(voice.json && output::is_stdout(&args.output)),
        "standard output can take one result: with --json, give the export a file (-o FILE)"
    );
    let loaded = input::load(&args.capture)?;
    let plan = ViewPlan::from(&args.view);
    input::or_damage(
        view::must_be_seen(&loaded.profile, plan.view),
        &args.capture.case,
        &loaded.damage,
    )?;
    let (name, content) = match args.format {
        ExportFormat::Folded => ("folded", folded(&loaded.profile, &plan)?),
    };
    output::file(&args.output, &content)?;
    if voice.json {
        output::json(&Document {
            schema: "export/1",
            tool: TOOL,
            capture: loaded.profile.capture.number,
            format: name,
            path: &args.output,
            bytes: content.len(),
            ledger: &loaded.profile.ledger,
        })?;
    }
    Ok(input::remarks(&loaded.profile, &loaded.damage, voice))
}
