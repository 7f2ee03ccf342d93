//! `throughline jit diff`: two states compared.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use throughline_analyses::jit::{JitDocument, SCHEMA, diff};

use crate::args::JitDiffArgs;
use crate::failure::{Outcome, TooFewData};
use crate::output::{self, Voice};

/// Larger documents are none of ours: 65,535 traces with 2 KiB each.
const DOCUMENT_MAX: u64 = 256 << 20;

pub fn run(args: &JitDiffArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    let (before, after) = (document(&args.before)?, document(&args.after)?);
    let diff = diff(&before, &after);
    if voice.json {
        output::json(&diff)?;
    } else {
        output::text(&diff.text())?;
    }
    Ok(if diff.lost().is_empty() {
        Outcome::Done
    } else {
        Outcome::DoesNotHold
    })
}

fn document(path: &Path) -> Result<JitDocument> {
    let shown = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(shown)?;
    let read = file
        .take(DOCUMENT_MAX + 1)
        .read_to_string(&mut text)
        .with_context(shown)?;
    ensure!(
        read as u64 <= DOCUMENT_MAX,
        "{} is too large for a document of jit --json",
        path.display()
    );
    let document: JitDocument = serde_json::from_str(&text)
        .with_context(|| format!("{} is no document of jit --json", path.display()))?;
    ensure!(
        document.schema == SCHEMA,
        "{} is a document of {:?}, not of {SCHEMA:?}",
        path.display(),
        document.schema
    );
    if document.vm.is_empty() {
        let reason = format!("{} holds no VM", path.display());
        return Err(anyhow::Error::new(TooFewData(reason)));
    }
    Ok(document)
}
