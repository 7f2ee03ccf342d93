//! What a run comes to: an exit code, and a message when there is no result.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use throughline_analyses::path::PathError;
use throughline_analyses::rank::NotEnoughData;
use throughline_profile::escape;
use throughline_store::StoreError;

/// How a verb that produced its result ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, or it holds.
    Done,
    /// It does not hold.
    DoesNotHold,
    /// There is a result, and it is that nothing can be said.
    NotEnoughData,
    /// The input is damaged; what could be read is in the result.
    Damaged,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::DoesNotHold => 1,
            Outcome::NotEnoughData => 3,
            Outcome::Damaged => 4,
        })
    }
}

/// A result that cannot be given because there are too few data; exit code 3.
#[derive(Debug)]
pub struct TooFewData(pub String);

impl std::fmt::Display for TooFewData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooFewData {}

/// Prints what clap says: help on standard output with code 0, refusals on standard error with code 2.
pub fn usage(refusal: &clap::Error) -> ExitCode {
    // A closed pipe is all that can fail here, and there is nobody left to tell.
    let _ = refusal.print();
    ExitCode::from(if refusal.use_stderr() { 2 } else { 0 })
}

/// Tells of a failure on standard error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let code = code(error);
    if code != 0 {
        // One line: names in it may be foreign.
        let text = message(error);
        let _ = writeln!(io::stderr(), "throughline: {}", escape(&text));
    }
    ExitCode::from(code)
}

/// Whether the failure is that there are too few data for a result.
pub fn is_too_few_data(error: &anyhow::Error) -> bool {
    error.chain().any(says_too_few_data)
}

fn says_too_few_data(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<NotEnoughData>()
        || cause.is::<TooFewData>()
        || matches!(cause.downcast_ref(), Some(PathError::TooFew { .. }))
}

/// The causes in one sentence. Many errors tell their cause in their own words, and then it is not said again.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
        {
            return 0;
        }
        if says_too_few_data(cause) {
            return 3;
        }
        if matches!(cause.downcast_ref(), Some(StoreError::Damaged { .. })) {
            return 4;
        }
    }
    2
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn a_cause_that_an_error_tells_itself_is_not_told_twice() {
        let cause = || anyhow::Error::new(std::io::Error::other("disk gone"));
        for context in ["cannot write a.tl", "cannot write a.tl: disk gone"] {
            let error = cause().context(context);
            assert_eq!(message(&error), "cannot write a.tl: disk gone");
        }
    }
}
