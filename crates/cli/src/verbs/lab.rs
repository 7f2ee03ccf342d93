//! `throughline lab`: known faults under a known load.

use std::fmt::Write as _;
use std::io;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use throughline_experiment::lab::{self, LabLoad, LabPlan, LoadCommand};
use throughline_experiment::load;

use crate::args::{LabListArgs, LabRunArgs, LabVerb, Load};
use crate::failure::Outcome;
use crate::output::{self, TOOL, Voice};
use crate::signals::Interrupts;

pub fn run(verb: LabVerb) -> Result<Outcome> {
    match verb {
        LabVerb::List(args) => list(&args),
        LabVerb::Run(args) => run_lab(args),
        LabVerb::Load => {
            // Standard input is not locked here: the load reads it on a thread of its own.
            load::serve(io::stdin(), io::stdout())?;
            Ok(Outcome::Done)
        }
    }
}

/// A line of `lab run --json`: the library's own, and what every document says of itself.
#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'static str,
    tool: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T> Line<'a, T> {
    fn new(schema: &'static str, content: &'a T) -> Self {
        Self {
            schema,
            tool: TOOL,
            content,
        }
    }
}

fn list(args: &LabListArgs) -> Result<Outcome> {
    let labs = lab::list();
    if args.voice.json {
        output::json(&json!({"schema": "lab-list/1", "tool": TOOL, "labs": labs}))?;
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    for lab in labs {
        let _ = writeln!(
            text,
            "{}\n  what runs: {}\n  symptom:   {}",
            lab.name, lab.summary, lab.symptom
        );
    }
    output::text(&text)?;
    Ok(Outcome::Done)
}

fn run_lab(args: LabRunArgs) -> Result<Outcome> {
    let voice = Voice::from(&args.voice);
    let prelude = match &args.prelude {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
        ),
        None => None,
    };
    let plan = LabPlan {
        name: args.name,
        fixed: args.fixed,
        workers: args.workers,
        load: match args.load {
            Load::Closed => LabLoad::Closed,
            Load::None => LabLoad::None,
            Load::Rate(rate) => LabLoad::Rate(rate),
        },
        load_command: LoadCommand {
            program: std::env::current_exe()?,
            arguments: vec!["lab".into(), "load".into()],
        },
        duration: args.length,
        port: args.port,
        directory: args.dir,
        nginx: args.nginx,
        prelude,
    };
    let interrupts = Interrupts::watch()?;
    let mut told = Ok(());
    let summary = lab::run(
        &plan,
        |ready| {
            told = if voice.json {
                output::json(&Line::new("lab-ready/1", ready))
            } else {
                ready_text(ready, voice)
            };
            if told.is_err() {
                // Nobody is left to run it for.
                interrupts.raise();
            }
        },
        interrupts.flag(),
    )?;
    told?;
    if voice.json {
        output::json(&Line::new("lab-summary/1", &summary))?;
    } else {
        output::text(&summary_text(&summary))?;
    }
    Ok(Outcome::Done)
}

fn ready_text(ready: &lab::Ready, voice: Voice) -> Result<()> {
    let pids = |pids: &[u32]| match pids {
        [] => "none".to_owned(),
        pids => pids
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    };
    let repair = if ready.fixed { " with the repair" } else { "" };
    output::text(&format!(
        "{}{repair} answers at {}\n  master {}, workers {}, upstream {}, load {}\n",
        ready.lab,
        ready.url,
        ready.pids.master,
        pids(&ready.pids.workers),
        pids(&ready.pids.upstream),
        pids(&ready.pids.load),
    ))?;
    voice.remark(&format!("  record it with: {}", ready.case_hint));
    Ok(())
}

/// A figure or why there is none.
fn figure(value: Option<f64>, reason: Option<&str>, unit: &str) -> String {
    match value {
        Some(value) => format!("{value:.1}{unit}"),
        None => format!("not known ({})", reason.unwrap_or("it was not measured")),
    }
}

fn summary_text(summary: &lab::Summary) -> String {
    let count = |value: Option<u64>, reason| match value {
        Some(value) => value.to_string(),
        None => figure(None, reason, ""),
    };
    format!(
        "requests {}, errors {}\nrequests per second {}\nworker CPU per request {}\n",
        count(summary.requests, summary.requests_reason),
        count(summary.errors, summary.errors_reason),
        figure(summary.req_per_s, summary.req_per_s_reason, ""),
        figure(
            summary.worker_cpu_us_per_request,
            summary.worker_cpu_us_per_request_reason,
            " us"
        ),
    )
}
