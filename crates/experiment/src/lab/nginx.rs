//! One running nginx: started in the foreground, ended by its process ids.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::LabError;
use super::requirements::Nginx;
use super::workers::{ProcessIdentity, children_of};
use crate::sys;

/// nginx tries to bind five times, half a second apart, before it gives up.
const START_LIMIT: Duration = Duration::from_secs(8);
/// How long a graceful, then a fast shutdown may take before the next means.
const QUIT_LIMIT: Duration = Duration::from_secs(2);
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// How much of a log an error message quotes.
const LOG_LINES: usize = 6;

/// How to start an nginx and how to tell that it is up.
pub(super) struct Launch<'a> {
    pub(super) role: &'static str,
    pub(super) nginx: &'a Nginx,
    pub(super) directory: &'a Path,
    pub(super) configuration: &'a str,
    pub(super) port: u16,
    pub(super) workers: usize,
    /// The body of the answer to `GET /` once it is up.
    pub(super) body: &'a str,
}

/// A master process and its workers. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Server {
    role: &'static str,
    master: Child,
    output: PathBuf,
    /// Workers as last seen, for the case that the master dies without ending them.
    workers_seen: Vec<ProcessIdentity>,
    ended: bool,
}

impl Server {
    /// Starts nginx and waits until it answers with all of its workers.
    pub(super) fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let configuration = launch.directory.join(format!("{}.conf", launch.role));
        super::directory::write(&configuration, launch.configuration)?;
        let output = launch.directory.join(format!("{}.log", launch.role));
        let file = |path: &Path| {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|source| LabError::Directory {
                    action: "open",
                    path: path.to_owned(),
                    source,
                })
        };
        let mut command = Command::new(&launch.nginx.binary);
        command
            .arg("-p")
            .arg(launch.directory)
            .arg("-e")
            .arg(&output)
            .arg("-c")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(file(&output)?)
            .stderr(file(&output)?)
            // Ctrl-C at the terminal is for the runner, which ends the others in order.
            .process_group(0);
        // The master ends its workers on SIGTERM; on SIGKILL it could not.
        sys::signal_on_parent_death(&mut command, sys::SIGTERM);
        let master = command.spawn().map_err(|error| LabError::NginxFailed {
            role: launch.role,
            reason: error.to_string(),
        })?;
        let mut server = Self {
            role: launch.role,
            master,
            output,
            workers_seen: Vec::new(),
            ended: false,
        };
        server.await_ready(launch)?;
        Ok(server)
    }

    fn await_ready(&mut self, launch: &Launch<'_>) -> Result<(), LabError> {
        let deadline = Instant::now() + START_LIMIT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, launch.port));
        loop {
            self.check_running(|role, reason| LabError::NginxFailed { role, reason })?;
            let workers = self.workers().len();
            // Workers first: an answer from somebody else on our port must not count as ours.
            let answer = (workers == launch.workers).then(|| ask(address));
            match answer {
                Some(Ok(text)) if text.ends_with(launch.body) && text.contains(" 200 ") => {
                    return Ok(());
                }
                _ if Instant::now() < deadline => thread::sleep(POLL_PAUSE),
                Some(Ok(text)) => {
                    let first = text.lines().next().unwrap_or("nothing").to_owned();
                    return Err(self.failed(&format!("it answered {first:?}")));
                }
                Some(Err(error)) => return Err(self.failed(&format!("no answer: {error}"))),
                None => {
                    return Err(self.failed(&format!("{workers} of {} workers", launch.workers)));
                }
            }
        }
    }

    fn failed(&self, what: &str) -> LabError {
        LabError::NginxFailed {
            role: self.role,
            reason: format!("{what}; {}", self.log_tail()),
        }
    }

    /// An error made by `error` when the master has ended.
    pub(super) fn check_running(
        &mut self,
        error: impl FnOnce(&'static str, String) -> LabError,
    ) -> Result<(), LabError> {
        match self.master.try_wait() {
            Ok(None) => {
                self.look_at_workers();
                Ok(())
            }
            Ok(Some(status)) => {
                self.stop();
                Err(error(self.role, format!("{status}; {}", self.log_tail())))
            }
            Err(source) => Err(LabError::System {
                action: "wait for nginx",
                source,
            }),
        }
    }

    pub(super) fn master_pid(&self) -> u32 {
        self.master.id()
    }

    pub(super) fn workers(&self) -> Vec<u32> {
        children_of(self.master.id())
    }

    fn look_at_workers(&mut self) {
        let workers = self.workers();
        self.workers_seen = workers
            .into_iter()
            .filter_map(ProcessIdentity::of)
            .collect();
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(LOG_LINES)..)
            .unwrap_or_default();
        if tail.is_empty() {
            "its log is empty".to_owned()
        } else {
            tail.join("\n")
        }
    }

    /// Whether an error of `start` means that another process took the port in between.
    pub(super) fn lost_its_port(error: &LabError) -> bool {
        matches!(error, LabError::NginxFailed { reason, .. } if reason.contains("Address already in use"))
    }

    /// Ends master and workers: gracefully, then fast, then by force.
    pub(super) fn stop(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        for signal in [sys::SIGQUIT, sys::SIGTERM, sys::SIGKILL] {
            if !matches!(self.master.try_wait(), Ok(None)) {
                break;
            }
            self.look_at_workers();
            // The master has not been waited for, so its id is still its own.
            let _ = sys::send_signal(self.master.id(), signal);
            self.await_end(QUIT_LIMIT);
        }
        for worker in &self.workers_seen {
            worker.signal(sys::SIGKILL);
        }
        let deadline = Instant::now() + QUIT_LIMIT;
        while self.workers_seen.iter().any(|worker| worker.is_alive()) && Instant::now() < deadline
        {
            thread::sleep(POLL_PAUSE);
        }
    }

    /// Waits for the master, up to `limit`.
    fn await_end(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(POLL_PAUSE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One request for `/`, answered in full.
fn ask(address: SocketAddr) -> io::Result<String> {
    const LIMIT: Duration = Duration::from_secs(1);
    const ANSWER_BYTES_MAX: u64 = 64 << 10;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
