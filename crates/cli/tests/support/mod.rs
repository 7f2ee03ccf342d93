//! The real binary, real small programs, and a case whose content is known.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The binary.
pub fn throughline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_throughline"))
}

/// Runs it to its end.
pub fn run(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = throughline();
    command.args(arguments.iter().map(AsRef::as_ref));
    command.output().expect("the binary starts")
}

/// Arguments of different types in one list.
#[macro_export]
macro_rules! run {
    ($($argument:expr),* $(,)?) => {
        $crate::support::run(&[$(&$argument),*])
    };
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one document that a `--json` run printed.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{}", out(output), err(output));
    })
}

pub fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}\n{}",
        out(output),
        err(output)
    );
}

/// Whether this run may load BPF programs; says so when not.
pub fn may_record() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    eprintln!("SKIPPED: root: recording needs CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
    false
}

/// Whether a program is installed; says so when not.
pub fn has_program(name: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
        || Path::new("/usr/sbin").join(name).is_file();
    if !found {
        eprintln!("SKIPPED: {name}: it is not installed");
    }
    found
}

/// A directory that anybody may write to and that goes away.
pub fn directory() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), mode).expect("its mode");
    dir
}

/// A program of `tests/programs`, compiled once with these options of its own.
pub fn program(name: &str) -> &'static Path {
    static BUILT: OnceLock<(TempDir, Vec<(&'static str, PathBuf)>)> = OnceLock::new();
    let (_, programs) = BUILT.get_or_init(|| {
        let dir = directory();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).expect("its mode");
        let built = [
            ("spin", "spin.c", &["-O1", "-g"][..]),
            (
                "blind",
                "blind.c",
                &[
                    "-O2",
                    "-fomit-frame-pointer",
                    "-fno-asynchronous-unwind-tables",
                    "-fno-unwind-tables",
                ],
            ),
        ]
        .map(|(name, source, options)| (name, compile(dir.path(), name, source, options)));
        (dir, built.to_vec())
    });
    let found = programs.iter().find(|(known, _)| *known == name);
    &found.expect("a known program").1
}

fn compile(dir: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let path = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let status = Command::new("cc")
        .args(options)
        .arg("-o")
        .arg(&path)
        .arg(source)
        .status()
        .expect("a C compiler, which the build needs too");
    assert!(status.success());
    path
}

/// A running program that ends with the test.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// A program that is always on a core.
    pub fn spinning() -> Self {
        Self::start(&mut Command::new(program("spin")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recorder in the background, with its output kept.
pub fn recorder(arguments: &[&dyn AsRef<OsStr>]) -> Running {
    let mut command = throughline();
    command
        .args(arguments.iter().map(AsRef::as_ref))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::start(&mut command)
}

/// Waits for it, and takes what it printed.
pub fn finish(mut running: Running) -> Output {
    // `wait_with_output` wants the child itself.
    let child = std::mem::replace(
        &mut running.0,
        Command::new("true")
            .spawn()
            .expect("a child to leave behind"),
    );
    child.wait_with_output().expect("its output")
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Samples that the newest capture of a case holds, whatever state the file is in.
pub fn kept(case: &Path) -> u64 {
    let output = run(&[&"captures", &case, &"--json"]);
    if !output.status.success() {
        return 0;
    }
    json(&output)["captures"]
        .as_array()
        .and_then(|captures| captures.last()?["ledger"]["kept"].as_u64())
        .unwrap_or(0)
}

/// A ledger adds up.
pub fn assert_balances(ledger: &Value) {
    let lost: u64 = ledger["lost"]
        .as_object()
        .expect("a table of losses")
        .values()
        .map(|count| count.as_u64().expect("a count"))
        .sum();
    assert_eq!(
        ledger["taken"].as_u64().expect("taken"),
        ledger["kept"].as_u64().expect("kept") + lost,
        "{ledger}"
    );
}

/// Every `null` of a document has its reason beside it.
pub fn assert_nulls_have_reasons(value: &Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                // A reason is null beside the value that it is not needed for.
                if value.is_null() && !key.ends_with("_reason") {
                    let reason = map.get(&format!("{key}_reason"));
                    assert!(
                        reason.is_some_and(Value::is_string),
                        "{key} is null without a reason"
                    );
                }
                assert_nulls_have_reasons(value);
            }
        }
        Value::Array(values) => values.iter().for_each(assert_nulls_have_reasons),
        _ => {}
    }
}

mod known_case;
#[allow(unused_imports, reason = "not every test reads a case")]
pub use known_case::{HOSTILE, write as known_case};
