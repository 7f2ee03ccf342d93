//! Running a program that says what it did.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// No program of these tests needs longer for anything, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running program; it is killed when the value is dropped, and when the thread that started it dies.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Program {
    /// Starts a program that prints lines and waits for one on its standard input before it works.
    pub fn start(program: impl AsRef<Path>, arguments: &[&str]) -> Self {
        Self::start_with(
            Command::new("setpriv")
                .args(["--pdeathsig", "KILL"])
                .arg(program.as_ref())
                .args(arguments),
        )
    }

    /// Starts it on one core only.
    pub fn start_on_core(core: u32, program: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &core.to_string()]);
        Self::start_with(command.arg(program.as_ref()).args(arguments))
    }

    fn start_with(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self::of_child(child)
    }

    /// Takes over a program that was started with its standard output in a pipe.
    pub fn of_child(mut child: Child) -> Self {
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the program work.
    pub fn go(&mut self) {
        let input = self.input.as_mut().expect("the program takes input");
        writeln!(input, "go").expect("the program reads its input");
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the program printed nothing for {PATIENCE:?}")
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the program ended: {:?}", self.child.wait())
            }
        }
    }

    /// The next line, if there is one already.
    pub fn line_if_any(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits for a line.
    pub fn expect_line(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    /// All lines until it ends, as pairs of a name and a number.
    pub fn numbers(&mut self) -> Vec<(String, f64)> {
        let mut numbers = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => numbers.extend(parse_number(&line)),
                Err(RecvTimeoutError::Disconnected) => return numbers,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the program did not end within {PATIENCE:?}")
                }
            }
        }
    }
}

fn parse_number(line: &str) -> Option<(String, f64)> {
    let (name, number) = line.split_once(' ')?;
    Some((name.to_owned(), number.parse().ok()?))
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of this test binary's own.
pub fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Compiles a C file of `tests/programs` and answers with the program's path.
pub fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let source = programs().join(source);
    let output = Command::new("cc")
        .args(["-O2", "-g0", "-Wall"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("cc is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Where the programs' sources are.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The number of the line of a script that ends in the comment `-- HERE: mark`.
pub fn marked_line(script: &Path, mark: &str) -> u32 {
    let text = fs::read_to_string(script).expect("the script can be read");
    let marker = format!("-- HERE: {mark}");
    let mut lines = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.ends_with(&marker));
    match (lines.next(), lines.next()) {
        (Some((_, number)), None) => number,
        _ => panic!(
            "{marker:?} does not mark exactly one line of {}",
            script.display()
        ),
    }
}
