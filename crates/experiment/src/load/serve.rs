//! The load generator as a child process: a plan in, messages out.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::{LoadError, LoadPlan, LoadResult, run};

/// A plan is a line of JSON; nothing that a plan may hold makes it longer than this.
const PLAN_BYTES_MAX: u64 = 1 << 20;

/// One line that [`serve`] writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServeMessage {
    /// All connections stand; the load begins.
    Started,
    /// The load is over.
    Result(LoadResult),
    /// The load could not be generated; the reason for people.
    Failed(String),
}

/// Why [`serve`] could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The plan could not be read.
    #[error("cannot read the load plan: {0}")]
    Read(#[source] std::io::Error),
    /// The plan is not the JSON of a [`LoadPlan`].
    #[error("the load plan is damaged: {0}")]
    Plan(#[source] serde_json::Error),
    /// The load itself failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Nobody reads the result.
    #[error("cannot write the result: {0}")]
    Write(#[source] std::io::Error),
}

/// Generates load as a child process does: one [`LoadPlan`] as a line of JSON comes in, one
/// [`ServeMessage`] a line goes out. The end of `input` stops the load, so it also stops when the
/// parent dies.
///
/// The hidden verb `throughline lab load` is this function on standard input and output.
///
/// # Errors
///
/// See [`ServeError`]; a load that fails is also told on `output`.
pub fn serve(input: impl Read + Send + 'static, mut output: impl Write) -> Result<(), ServeError> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input
        .by_ref()
        .take(PLAN_BYTES_MAX)
        .read_line(&mut line)
        .map_err(ServeError::Read)?;
    let plan: LoadPlan = serde_json::from_str(&line).map_err(ServeError::Plan)?;

    let stop = Arc::new(AtomicBool::new(false));
    let input_ended = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(input.read(&mut rest), Ok(count) if count > 0) {}
        input_ended.store(true, Ordering::Relaxed);
    });

    let mut told = Ok(());
    let outcome = run(&plan, &stop, || {
        told = tell(&mut output, &ServeMessage::Started)
    });
    told?;
    match outcome {
        Ok(result) => tell(&mut output, &ServeMessage::Result(result)),
        Err(error) => {
            tell(&mut output, &ServeMessage::Failed(error.to_string()))?;
            Err(error.into())
        }
    }
}

fn tell(output: &mut impl Write, message: &ServeMessage) -> Result<(), ServeError> {
    let mut line =
        serde_json::to_string(message).map_err(|error| ServeError::Write(error.into()))?;
    line.push('\n');
    output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush())
        .map_err(ServeError::Write)
}
