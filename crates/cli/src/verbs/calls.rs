//! `throughline calls`: how often do functions run per request?

mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use throughline_analyses::calls::{calls, compare, render, render_comparison};

use self::watch::Watch;
use crate::args::CallsArgs;
use crate::failure::Outcome;
use crate::output::{self, ProgressLine, Voice};
use crate::signals::Interrupts;
use crate::verbs::targets::{Selection, proc_is_ours};

/// Between two looks at the counters: what a process that ends has counted since the last is lost.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait before a signal is seen.
const STEP: Duration = Duration::from_millis(50);
/// A document of `calls --json` with all starts that a probe has room for is shorter.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

pub fn run(args: CallsArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    if !args.compare.is_empty() {
        return compare_documents(&args.compare, voice);
    }
    proc_is_ours()?;
    let interrupts = Interrupts::watch()?;
    let mut watch = Watch::begin(Selection::from(args.target))?;
    let begun = Instant::now();
    let line = ProgressLine::new(voice, Some(args.window));
    let mut looked = begun;
    while begun.elapsed() < args.window && !interrupts.came() {
        std::thread::sleep(STEP.min(args.window.saturating_sub(begun.elapsed())));
        line.show(begun.elapsed(), "counting");
        if looked.elapsed() >= LOOK_PAUSE {
            watch.look();
            looked = Instant::now();
        }
    }
    line.clear();
    let (watched, requests) = watch.end();
    let report = calls(&watched, requests, begun.elapsed().as_secs_f64());
    if voice.json {
        output::json(&report)?;
    } else {
        output::text(&render(&report))?;
    }
    Ok(Outcome::Done)
}

fn compare_documents(paths: &[PathBuf], voice: Voice) -> Result<Outcome> {
    let documents = paths
        .iter()
        .map(|path| document(path).with_context(|| path.display().to_string()))
        .collect::<Result<Vec<_>>>()?;
    let comparison = compare(&documents).map_err(|reason| anyhow!(reason))?;
    if voice.json {
        output::json(&comparison)?;
    } else {
        output::text(&render_comparison(&comparison))?;
    }
    Ok(match comparison.probe_changed_jit {
        Some(false) => Outcome::Done,
        Some(true) => Outcome::DoesNotHold,
        None => Outcome::NotEnoughData,
    })
}

fn document(path: &Path) -> Result<Value> {
    let size = fs::metadata(path)?.len();
    ensure!(
        size <= DOCUMENT_BYTES_MAX,
        "too large for a document of `calls --json`"
    );
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
