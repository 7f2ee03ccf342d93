//! `throughline`: arguments, a plan, the work, an exit code.
//!
//! [`args`] holds what the user typed and nothing else. Each module of [`verbs`] turns its part into a checked plan, carries it
//! out, and hands what came of it to [`output`]. Failures arrive here, once, and become a message and an exit code in
//! [`failure`].
//!
//! Exit codes of every verb: 0 done, or it holds; 1 it does not hold; 2 usage, permission or environment; 3 not enough data to
//! say; 4 input damaged. A reader that closes our output has had enough: that is 0.

mod args;
mod failure;
mod output;
mod signals;
mod sys;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Verb};
use crate::failure::Outcome;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(refusal) => return failure::usage(&refusal),
    };
    match run(args.verb) {
        Ok(outcome) => outcome.into(),
        Err(error) => failure::report(&error),
    }
}

fn run(verb: Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Check(args) => verbs::check::run(args),
        Verb::Record(args) => verbs::record::run(*args),
        Verb::Captures(args) => verbs::captures::run(&args),
        Verb::Rank(args) => verbs::rank::run(&args),
        Verb::Path(args) => verbs::path::run(&args),
        Verb::Flame(args) => verbs::flame::run(&args),
        Verb::Export(args) => verbs::export::run(&args),
        Verb::Jit(args) => verbs::jit::run(*args),
        Verb::Calls(args) => verbs::calls::run(args),
        Verb::Lab(args) => verbs::lab::run(args.verb),
        Verb::RunWhenRecorded(args) => verbs::record::run_when_recorded(args),
    }
}
