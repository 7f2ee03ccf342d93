//! The load: the generator of the labs as a child process, one plan each.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::lab::Lab;

/// As many as the lab itself uses: CPU per request is flat from here on (it falls with batching below).
const CONNECTIONS: u32 = 64;

/// A load that is running. Dropping it ends it.
pub struct Load {
    child: Child,
}

impl Load {
    /// Starts a load; without a duration it runs until it is dropped.
    pub fn start(binary: &Path, lab: &Lab, duration: Option<Duration>) -> Result<Self> {
        let plan = json!({
            "address": lab.address,
            "path": "/",
            "host": "localhost",
            "connections": CONNECTIONS,
            "pace": "closed",
            "duration": duration.map(|length| json!({"secs": length.as_secs(), "nanos": length.subsec_nanos()})),
            "expect": {"status": 200, "body": null},
            "cpu": lab.load_core,
        });
        let mut child = Command::new(binary)
            .args(["lab", "load"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the load")?;
        // The end of its input stops the load, so the pipe stays open in the child's handle.
        let input = child.stdin.as_mut().context("the load has no input")?;
        let sent = writeln!(input, "{plan}");
        let load = Self { child };
        sent.context("the load does not take its plan")?;
        Ok(load)
    }

    /// Waits for the end of a load that has a duration and returns its requests. It waits for the answers that are on their way,
    /// so these are all that the worker saw.
    pub fn finish(mut self) -> Result<u64> {
        let output = self.child.stdout.take().context("the load has no output")?;
        for line in BufReader::new(output).lines() {
            let message: Value = serde_json::from_str(&line?)?;
            if let Some(reason) = message["failed"].as_str() {
                bail!("the load failed: {reason}");
            }
            if message["result"].is_object() {
                return requests(&message["result"]);
            }
        }
        bail!("the load ended without a result")
    }
}

fn requests(value: &Value) -> Result<u64> {
    let errors: u64 = value["errors"]
        .as_object()
        .context("no errors")?
        .values()
        .filter_map(Value::as_u64)
        .sum();
    ensure!(errors == 0, "{errors} requests were not answered rightly");
    let requests = value["requests"].as_u64().context("no requests")?;
    ensure!(requests > 0, "no request was answered");
    Ok(requests)
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
