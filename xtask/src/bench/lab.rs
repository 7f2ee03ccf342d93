//! The gateway that is recorded: `throughline lab run global-rules`, one incarnation of it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::recorder::interrupt;

/// A lab that is forgotten ends by itself after this time.
const GUARD: &str = "15m";

/// A running lab without a load of its own. Dropping it ends it.
pub struct Lab {
    child: Child,
    pub address: SocketAddr,
    pub worker: u32,
    pub load_core: usize,
}

impl Lab {
    pub fn start(binary: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["lab", "run", "global-rules", "--workers", "1"])
            .args(["--load", "none", "--json", "--for", GUARD])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut ready = String::new();
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            output.read_line(&mut ready)?;
            // Kept open, so that the lab can tell its summary to somebody.
            child.stdout = Some(output.into_inner());
        }
        match Self::parse(child, &ready) {
            Ok(lab) => Ok(lab),
            Err((mut child, error)) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(format!("the lab did not come up; it said {ready:?}")))
            }
        }
    }

    fn parse(child: Child, ready: &str) -> Result<Self, (Child, anyhow::Error)> {
        let read = || -> Result<(SocketAddr, u32, usize)> {
            let ready: Value = serde_json::from_str(ready)?;
            let url = ready["url"].as_str().context("no url")?;
            let address = url
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .parse()
                .context("the url holds no address")?;
            let number = |value: &Value, what: &'static str| value.as_u64().context(what);
            let worker = number(&ready["pids"]["workers"][0], "no worker")?;
            let worker_core = number(&ready["cores"]["workers"][0], "no core of the worker")?;
            let load_core = number(&ready["cores"]["load"], "no core of the load")?;
            ensure!(
                worker_core != load_core,
                "the worker needs a core of its own, and only one is allowed here"
            );
            Ok((address, u32::try_from(worker)?, usize::try_from(load_core)?))
        };
        match read() {
            Ok((address, worker, load_core)) => Ok(Self {
                child,
                address,
                worker,
                load_core,
            }),
            Err(error) => Err((child, error)),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Either fails only when it has ended already.
        let _ = interrupt(&self.child);
        let _ = self.child.wait();
    }
}
