//! Runs a lab without the command line of `throughline`, and shows how a caller uses the library.
//!
//! ```text
//! cargo run -p throughline-experiment --example lab -- list
//! cargo run -p throughline-experiment --example lab -- run global-rules [--fixed] [--for SECONDS]
//!     [--workers N] [--load closed|none|RATE] [--port N] [--dir PATH] [--nginx PATH]
//! ```
//!
//! It prints the ready line, runs until the time is over or SIGINT or SIGTERM comes, and prints the
//! closing line.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use throughline_experiment::lab::{self, LabLoad, LabPlan, LoadCommand};
use throughline_experiment::load;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => print_line(&lab::list()),
        // Standard input is not locked here: the load reads it on a thread of its own.
        ["load"] => Ok(load::serve(std::io::stdin(), std::io::stdout())?),
        ["run", name, options @ ..] => run(plan(name, options)?),
        _ => bail!("usage: lab list | run NAME [OPTIONS] | load < plan.json"),
    }
}

fn plan(name: &str, options: &[&str]) -> anyhow::Result<LabPlan> {
    let load_command = LoadCommand {
        program: std::env::current_exe()?,
        arguments: vec!["load".into()],
    };
    let mut plan = LabPlan {
        name: name.to_owned(),
        fixed: false,
        workers: None,
        load: LabLoad::Closed,
        load_command,
        duration: None,
        port: None,
        directory: None,
        nginx: None,
        prelude: None,
    };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if *option == "--fixed" {
            plan.fixed = true;
            continue;
        }
        let value = options
            .next()
            .with_context(|| format!("{option} needs a value"))?;
        match *option {
            "--for" => plan.duration = Some(Duration::try_from_secs_f64(value.parse()?)?),
            "--workers" => plan.workers = Some(value.parse()?),
            "--port" => plan.port = Some(value.parse()?),
            "--dir" => plan.directory = Some(PathBuf::from(value)),
            "--nginx" => plan.nginx = Some(PathBuf::from(value)),
            "--prelude" => plan.prelude = Some(std::fs::read_to_string(value)?),
            "--load" => {
                plan.load = match *value {
                    "closed" => LabLoad::Closed,
                    "none" => LabLoad::None,
                    rate => LabLoad::Rate(rate.parse()?),
                }
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(plan)
}

fn run(plan: LabPlan) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut told = Ok(());
    let summary = lab::run(&plan, |ready| told = print_line(ready), &stop)?;
    told?;
    print_line(&summary)
}

fn print_line(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, value)?;
    writeln!(output)?;
    Ok(output.flush()?)
}
