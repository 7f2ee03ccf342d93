//! Writing results: to standard output or a file, as text or as one JSON document.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer};

use crate::args::VoiceArgs;

/// Version that every document names.
pub const TOOL: &str = env!("CARGO_PKG_VERSION");

/// How a verb speaks.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    pub json: bool,
    pub quiet: bool,
}

impl From<&VoiceArgs> for Voice {
    fn from(args: &VoiceArgs) -> Self {
        Self {
            json: args.json,
            quiet: args.quiet,
        }
    }
}

impl Voice {
    /// Whether a line that is overwritten again and again would be read by somebody.
    pub fn shows_progress(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Says something beside the result, on standard error.
    pub fn remark(self, text: &str) {
        if !self.quiet {
            // The remark is not worth failing for.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Prints text, whole.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a document on one line.
pub fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut out, document).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// A path in a document: one that is no UTF-8 is shown as well as can be, since the document may be about data that exist.
pub fn lossy<P: AsRef<Path>, S: Serializer>(path: &P, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.as_ref().to_string_lossy())
}

/// Whether a path stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a file, or standard output for `-`. A file is there in full or not at all: it is written beside its place first.
pub fn file(path: &Path, content: &str) -> anyhow::Result<()> {
    if is_stdout(path) {
        return Ok(text(content)?);
    }
    write_file(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn write_file(path: &Path, content: &str) -> io::Result<()> {
    // What is there and is no plain file (a pipe, a device, a link) is written to, not replaced.
    let replaceable = fs::symlink_metadata(path).map_or(true, |there| there.is_file());
    let (true, Some(name)) = (replaceable, path.file_name()) else {
        return File::create(path)?.write_all(content.as_bytes());
    };
    let mut beside = name.to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = File::create_new(&beside)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // That it cannot be taken away either is no news.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A line on the terminal that says how far a wait has come; nothing anywhere else.
pub struct ProgressLine(Option<ProgressBar>);

impl ProgressLine {
    /// `whole` is how long it will take, when that is known.
    pub fn new(voice: Voice, whole: Option<Duration>) -> Self {
        if !voice.shows_progress() {
            return Self(None);
        }
        let whole_ms = whole.map(milliseconds);
        let bar = ProgressBar::with_draw_target(whole_ms, ProgressDrawTarget::stderr_with_hz(5));
        let template = if whole.is_some() {
            "[{bar:24}] {msg}"
        } else {
            "{msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(Some(bar))
    }

    /// Shows the time that has passed, the time that is left, and a text.
    pub fn show(&self, elapsed: Duration, text: &str) {
        let Some(bar) = &self.0 else { return };
        let passed = elapsed.as_secs_f64();
        let left = bar
            .length()
            .map(|whole| (whole as f64 / 1e3 - passed).max(0.0));
        bar.set_position(milliseconds(elapsed));
        bar.set_message(match left {
            Some(left) => format!("{passed:.0} s, {left:.0} s left, {text}"),
            None => format!("{passed:.0} s, {text}"),
        });
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
