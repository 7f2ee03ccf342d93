//! Tasks of the project: `cargo xtask TASK`.

mod bench;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let task = arguments.next().unwrap_or_default();
    match task.to_string_lossy().as_ref() {
        "bench" => bench::run(arguments),
        other => anyhow::bail!("no task {other:?}; there is: bench record"),
    }
}
