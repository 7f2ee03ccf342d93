//! What a user types, as typed. Nothing is checked here beyond the shape of each word.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as Arguments, Parser, Subcommand, ValueEnum};

/// Finds where a live service loses its throughput, and says what the evidence does not prove.
#[derive(Debug, Parser)]
#[command(name = "throughline", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, or it holds; 1 it does not hold; 2 usage, permission or environment;
3 not enough data to say; 4 input damaged (what could be read is reported).

A first look at a gateway:
  throughline check  --name nginx --for 10s
  throughline record --name nginx --for 30s -o case.tl
  throughline rank   case.tl
  throughline path   case.tl run_global_rules
  throughline flame  case.tl -o flame.html";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// May a flame graph explain this service's throughput, and which one?
    Check(CheckArgs),
    /// Record processes, on the CPU and off it, C and Lua in one stack, into a case file
    Record(Box<RecordArgs>),
    /// List the captures of a case
    Captures(CapturesArgs),
    /// Rank functions, lines and waits by where the samples landed
    Rank(RankArgs),
    /// Roll one function up over all its stacks and request phases, C included, per request
    Path(PathArgs),
    /// Write a flame graph: an offline page, an SVG, or folded text
    Flame(FlameArgs),
    /// Write a capture in another tool's format
    Export(ExportArgs),
    /// What LuaJIT's compiler makes of a running program: traces, aborts, starts that it gave up
    Jit(Box<JitArgs>),
    /// Count calls of Lua functions per request, with the Lua probe loaded in the targets
    Calls(CallsArgs),
    /// Published faults, reproduced by a real nginx on loopback
    Lab(LabArgs),
    /// The program that `record -- COMMAND` starts: waits until it is recorded, then becomes the command
    #[command(name = "run-when-recorded", hide = true)]
    RunWhenRecorded(RunWhenRecordedArgs),
}

/// Processes, named in one of three ways.
#[derive(Debug, Arguments)]
pub struct TargetArgs {
    /// Processes by id, as seen from here; several with commas or by repeating
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// All processes of this name (nginx: its master and its workers)
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// All processes of a cgroup and of those below it: a path as in /proc/PID/cgroup, or a directory
    #[arg(long, value_name = "PATH", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub cgroup: Option<String>,
}

/// How a verb speaks.
#[derive(Debug, Arguments)]
pub struct VoiceArgs {
    /// Print one JSON document with stable names instead of text
    #[arg(long)]
    pub json: bool,
    /// No progress and no remarks; results and errors only
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Arguments)]
#[command(
    group(ArgGroup::new("target").args(["pid", "name", "cgroup"]).required(true)),
    after_help = "Example:\n  throughline check --name nginx --for 10s\n\n\
        Exit code 0: a graph may explain it; 1: it may not, and what to look at first; 3: no data."
)]
pub struct CheckArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// How long to watch
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub window: Duration,
    /// Time between two looks at the threads
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub interval: Duration,
    /// The processes that the targets call; without it, found at the other ends of their connections
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub upstream_pid: Vec<u32>,
    /// The processes that call the targets; without it, found in the same way
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub load_pid: Vec<u32>,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(
    group(ArgGroup::new("target").args(["pid", "name", "cgroup", "command"]).required(true)),
    after_help = "Examples:\n  throughline record --name nginx --for 30s -o case.tl\n  \
        throughline record --pid 4242,4243 --off-cpu --min-block 5ms\n  \
        throughline record -o build.tl -- make -j2\n\n\
        Ctrl-C ends a recording early and keeps all of it; a second one ends at once and keeps all but the last second.\n\
        A case file holds many captures: recording into one that exists adds the next."
)]
pub struct RecordArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// The case file to record into
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CASE)]
    pub output: PathBuf,
    /// Samples per second of CPU time of each thread
    #[arg(long, value_name = "HZ", default_value_t = 99)]
    pub rate: u32,
    /// How long to record [default: 30s; with a command, until it ends]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    /// Running threads only (with --off-cpu: both, as without either)
    #[arg(long)]
    pub on_cpu: bool,
    /// Waiting threads only
    #[arg(long)]
    pub off_cpu: bool,
    /// Waits shorter than this are counted and not kept
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    pub min_block: Duration,
    /// Waits longer than this are counted and not kept
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub max_block: Duration,
    /// Most bytes of a thread's stack that are copied for one sample [default: the most possible]
    #[arg(long, value_name = "BYTES")]
    pub stack_bytes: Option<u32>,
    /// Count requests by asking a stub_status or Prometheus page before and after, instead of reading nginx's counter or probing nginx
    #[arg(long, value_name = "URL")]
    pub requests_from: Option<String>,
    /// Do not count requests
    #[arg(long, conflicts_with = "requests_from")]
    pub no_requests: bool,
    /// Do not record the processes that the targets start
    #[arg(long)]
    pub no_follow: bool,
    /// Allow rates above 199 Hz and recordings above 60 s, and print what the samples cost
    #[arg(long)]
    pub beyond_safe: bool,
    #[command(flatten)]
    pub voice: VoiceArgs,
    /// A program to start, recorded from its first instruction until it ends
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Where a capture is.
#[derive(Debug, Arguments)]
pub struct CaptureArgs {
    /// The case file
    #[arg(value_name = "CASE", default_value = DEFAULT_CASE)]
    pub case: PathBuf,
    /// Number of the capture [default: the newest]
    #[arg(long, value_name = "N")]
    pub capture: Option<u32>,
}

#[derive(Debug, Arguments)]
#[command(after_help = "Example:\n  throughline captures case.tl")]
pub struct CapturesArgs {
    /// The case file
    #[arg(value_name = "CASE", default_value = DEFAULT_CASE)]
    pub case: PathBuf,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  throughline rank case.tl\n  throughline rank case.tl --off-cpu --limit 5 --json"
)]
pub struct RankArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Rank waiting threads instead of running ones
    #[arg(long)]
    pub off_cpu: bool,
    /// Order by inclusive share instead of self share
    #[arg(long)]
    pub inclusive: bool,
    /// Only samples of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Most rows of each list; 0 for all
    #[arg(long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  throughline path case.tl run_global_rules\n  throughline path case.tl plugin.lua:578 --json\n\n\
        Exit code 1: no function matches; 3: too few samples."
)]
pub struct PathArgs {
    /// The case file
    #[arg(value_name = "CASE")]
    pub case: PathBuf,
    /// A function: its name, source:line, or a part of either (all that match are taken together)
    #[arg(value_name = "FUNCTION", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub function: String,
    /// Number of the capture [default: the newest]
    #[arg(long, value_name = "N")]
    pub capture: Option<u32>,
    /// Only samples of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Most rows of each list; 0 for all
    #[arg(long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

/// Which part of a capture a graph shows.
#[derive(Debug, Arguments)]
pub struct ViewArgs {
    /// Waiting threads, weighed by time, instead of running ones (for --svg and --folded; the page holds all)
    #[arg(long, conflicts_with = "idle")]
    pub off_cpu: bool,
    /// Threads that wait for work, weighed by time
    #[arg(long)]
    pub idle: bool,
    /// Regular expression over names: marked in the SVG, kept in folded text; ignores case unless it has a capital
    #[arg(long, value_name = "REGEX")]
    pub search: Option<String>,
    /// Names from the root to the frame that fills the width; repeat for each level
    #[arg(long, value_name = "FRAME")]
    pub zoom: Vec<String>,
    /// Innermost frames first, their callers after them
    #[arg(long)]
    pub inverted: bool,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  throughline flame case.tl -o flame.html\n  \
        throughline flame case.tl --svg out.svg --folded - --search plugin"
)]
pub struct FlameArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Write the page, one file that needs no network [default: flame.html, unless --svg or --folded is given]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write one view as SVG; - is standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write one view as folded stacks; - is standard output
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Title of the page [default: the names of the targets]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub title: String,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(after_help = "Example:\n  throughline export case.tl --format folded > out.folded")]
pub struct ExportArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// The format
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// Where to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExportFormat {
    /// `frame;frame weight`, root first, one stack a line, sorted
    Folded,
}

#[derive(Debug, Arguments)]
#[command(
    group(ArgGroup::new("target").args(["pid", "name", "cgroup"]).required(true)),
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  throughline jit --name nginx\n  \
        throughline jit --pid 4242 --for 30s --json > on.json\n  \
        throughline jit diff off.json on.json\n\n\
        The target is neither stopped nor changed. Exit code 3: no VM that can be read, or its state went on changing."
)]
pub struct JitArgs {
    #[command(subcommand)]
    pub verb: Option<JitVerb>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Watch for so long, tell what happened, then look [default: one look]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// Time between two looks of a watch
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub interval: Duration,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Subcommand)]
pub enum JitVerb {
    /// Compare two states: which starts were lost, and what they have in common
    Diff(JitDiffArgs),
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Example:\n  throughline jit --name nginx --json > off.json   (then switch the feature on)\n  \
        throughline jit --name nginx --json > on.json\n  throughline jit diff off.json on.json\n\n\
        Exit code 1: starts are given up after that were not before."
)]
pub struct JitDiffArgs {
    /// A document of `jit --json`
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// A document of `jit --json`
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(
    group(ArgGroup::new("target").args(["pid", "name", "cgroup", "compare"]).required(true)),
    after_help = "Examples:\n  throughline calls --name nginx --for 10s\n  \
        throughline calls --compare without-1.json with-1.json without-2.json with-2.json\n\n\
        The targets load probe/throughline.lua first in init_by_lua; its head says which functions it can count.\n\
        With --compare exit code 0: counting changed nothing; 1: it did; 3: too few runs to say."
)]
pub struct CallsArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// How long to count
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub window: Duration,
    /// Compare documents of `calls --json` instead, of runs with counting and without: did counting change what LuaJIT compiled?
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["pid", "name", "cgroup"])]
    pub compare: Vec<PathBuf>,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
pub struct LabArgs {
    #[command(subcommand)]
    pub verb: LabVerb,
}

#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// List the labs
    #[command(after_help = "Example:\n  throughline lab list")]
    List(LabListArgs),
    /// Run a lab until --for ends or Ctrl-C comes, then stop all that it started
    Run(LabRunArgs),
    /// The load generator of a running lab: a plan on standard input, messages on standard output
    #[command(hide = true)]
    Load,
}

#[derive(Debug, Arguments)]
pub struct LabListArgs {
    #[command(flatten)]
    pub voice: VoiceArgs,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Example:\n  throughline lab run global-rules --for 60s &\n  \
        throughline record --name nginx -o case.tl\n\n\
        With --json two documents, a line each: when the lab is ready, and when it has ended."
)]
pub struct LabRunArgs {
    /// Name of the lab, as in `lab list`
    pub name: String,
    /// With the repair
    #[arg(long)]
    pub fixed: bool,
    /// Number of nginx workers [default: the lab's own]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// closed (as fast as answers come), none, or requests per second
    #[arg(long, value_name = "LOAD", default_value = "closed", value_parser = load)]
    pub load: Load,
    /// How long to run once it is ready [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    /// First port to try
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Where to make the lab's directory, which goes away at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The nginx to run
    #[arg(long, value_name = "FILE")]
    pub nginx: Option<PathBuf>,
    /// Lua that the gateway runs before it loads anything, such as the start of the probe
    #[arg(long, value_name = "FILE")]
    pub prelude: Option<PathBuf>,
    #[command(flatten)]
    pub voice: VoiceArgs,
}

/// What the load of a lab does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Closed,
    None,
    Rate(f64),
}

#[derive(Debug, Arguments)]
pub struct RunWhenRecordedArgs {
    /// Inherited file descriptor of a pipe: a byte means go, its end means that there is no recorder any more
    #[arg(long)]
    pub gate: i32,
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

const DEFAULT_CASE: &str = "throughline.tl";

/// A number and its unit: `500ms`, `30s`, `1.5s`, `2m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a number and its unit: 500us, 500ms, 30s, 2m, 1h";
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| FORM.to_owned())?;
    let unit_seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(FORM.to_owned()),
    };
    let length = Duration::try_from_secs_f64(number * unit_seconds)
        .map_err(|_| "too long a time".to_owned())?;
    if length.is_zero() {
        Err("the time must be longer than nothing".to_owned())
    } else {
        Ok(length)
    }
}

fn load(text: &str) -> Result<Load, String> {
    match text {
        "closed" => Ok(Load::Closed),
        "none" => Ok(Load::None),
        rate => match rate.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Load::Rate(rate)),
            _ => Err("closed, none, or a number of requests per second".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_has_no_contradictions() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in [
            "",
            "30",
            "s",
            "-1s",
            "1e400s",
            "0s",
            "30 s",
            "99999999999999999999h",
            "1..5s",
            "\u{661}s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_is_closed_none_or_a_rate() {
        assert_eq!(load("closed"), Ok(Load::Closed));
        assert_eq!(load("250"), Ok(Load::Rate(250.0)));
        for wrong in ["open", "-1", "0", "NaN", "inf"] {
            assert!(load(wrong).is_err(), "{wrong}");
        }
    }
}
