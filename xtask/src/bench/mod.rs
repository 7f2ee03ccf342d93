//! `cargo xtask bench`: what the tool costs what it measures, on this machine, as ratios out of one run.
//!
//! docs/bench.md says what is measured and how. Everything here drives the release build of `throughline` and the installed
//! `perf` from outside, as a user does; nothing is linked in, so that what is measured is what is shipped.

mod arms;
mod build;
mod clocks;
mod document;
mod footprint;
mod lab;
mod load;
mod machine;
mod proc;
mod recorder;
mod shuffle;
mod statistics;
mod sys;
mod targets;
mod text;
mod windows;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use footprint::Footprint;
use machine::Conditions;
use targets::{Outcome, Target};
use windows::Windows;

/// Rates that are measured, in Hz: the default, and the one that the promises are made for.
const RATES_HZ: [u32; 2] = [99, 499];

#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Cost of a recording: worker CPU per request, BPF time, the recorder's own CPU and memory
    Record(RecordBench),
}

#[derive(Args)]
struct RecordBench {
    /// How long the windows run; two blocks of 6 s at least
    #[arg(long, value_name = "N", default_value_t = 20.0)]
    minutes: f64,
    /// Milliseconds for which one recorder samples at a time
    #[arg(long, value_name = "MS", default_value_t = 10.0)]
    window: f64,
    /// Length of the recordings that give the recorder's CPU and memory
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    recording: f64,
    /// Seed of the order of the arms
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program to measure [default: the release build, made first]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// All that a run found.
struct Report {
    windows: Windows,
    footprints: Vec<Footprint>,
    conditions: Conditions,
    targets: Vec<Target>,
}

/// Runs the bench that the arguments (after `bench`) name.
///
/// Exit code 0: every target holds; 1: one does not; 3: one is not decided, or the machine was too busy to say.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let program = std::iter::once(OsString::from("cargo xtask bench"));
    let args = match BenchArgs::try_parse_from(program.chain(arguments)) {
        Ok(args) => args,
        Err(refusal) => {
            refusal.print()?;
            return Ok(ExitCode::from(if refusal.use_stderr() { 2 } else { 0 }));
        }
    };
    match args.what {
        What::Record(args) => record(&args),
    }
}

fn record(args: &RecordBench) -> Result<ExitCode> {
    let seconds = |value: f64, what: &str| {
        Duration::try_from_secs_f64(value).with_context(|| format!("{what} must be a length"))
    };
    let binary = match &args.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => build::release()?,
    };
    let scratch = tempfile::tempdir().context("cannot make a directory for the recordings")?;
    let setup = recorder::Setup {
        binary,
        scratch: scratch.path().to_owned(),
    };
    let before = machine::Reading::now()?;
    let windows = windows::measure(
        &setup,
        &windows::Plan {
            budget: seconds(args.minutes * 60.0, "--minutes")?,
            window: seconds(args.window / 1e3, "--window")?,
            seed: args.seed,
        },
    )?;
    let footprints = footprint::measure(&setup, seconds(args.recording, "--recording")?)?;
    let conditions = Conditions::between(&before, &machine::Reading::now()?);
    let report = Report {
        targets: targets::judge(&windows, &footprints),
        windows,
        footprints,
        conditions,
    };
    let shown = if args.json {
        serde_json::to_string_pretty(&document::document(&report))? + "\n"
    } else {
        text::text(&report)
    };
    std::io::stdout().write_all(shown.as_bytes())?;
    Ok(exit_code(&report))
}

fn exit_code(report: &Report) -> ExitCode {
    let any = |outcome| report.targets.iter().any(|t| t.outcome == outcome);
    if report.windows.distrust().is_some() || any(Outcome::Undecided) && !any(Outcome::DoesNotHold)
    {
        ExitCode::from(3)
    } else if any(Outcome::DoesNotHold) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    }
}
