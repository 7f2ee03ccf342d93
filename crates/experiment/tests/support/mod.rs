//! Running the example `lab` as a process, the way the command line of throughline runs a lab.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Labs share the CPUs they are pinned to, so they run one after the other.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine can run labs; prints what is missing when it cannot.
pub fn can_run_labs() -> bool {
    let missing = [
        ("nginx", "/usr/sbin/nginx"),
        (
            "libnginx-mod-http-lua",
            "/usr/lib/nginx/modules/ngx_http_lua_module.so",
        ),
        ("lua-resty-core", "/usr/share/lua/5.1/resty/core.lua"),
    ]
    .into_iter()
    .find(|(_, file)| !PathBuf::from(file).is_file());
    if let Some((package, file)) = missing {
        eprintln!("SKIPPED: {package}: {file} is not installed");
    }
    missing.is_none()
}

/// The example, which cargo builds together with the tests.
pub fn example() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/lab");
    assert!(
        path.is_file(),
        "build it first: cargo build -p throughline-experiment --example lab"
    );
    path
}

pub struct Lab {
    pub runner: Child,
    pub ready: Value,
    output: BufReader<ChildStdout>,
}

impl Lab {
    pub fn start(arguments: &[&str]) -> Self {
        let mut runner = Command::new(example())
            .arg("run")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(runner.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut errors = String::new();
            runner
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut errors)
                .unwrap();
            panic!("no ready line but {line:?}; {errors}")
        });
        Self {
            runner,
            ready,
            output,
        }
    }

    /// The process ids of one kind: `workers`, `upstream`, `load`.
    pub fn pids(&self, kind: &str) -> Vec<u32> {
        pids(&self.ready["pids"][kind])
    }

    pub fn master(&self) -> u32 {
        u32::try_from(self.ready["pids"]["master"].as_u64().unwrap()).unwrap()
    }

    /// All processes that belong to the lab, the upstream's master too.
    pub fn all_pids(&self) -> Vec<u32> {
        let mut all = children(self.runner.id());
        for child in all.clone() {
            all.extend(children(child));
        }
        all
    }

    pub fn directory(&self) -> PathBuf {
        PathBuf::from(self.ready["directory"].as_str().unwrap())
    }

    pub fn signal(&self, name: &str) {
        signal(self.runner.id(), name);
    }

    /// Waits for the end and returns the closing line.
    pub fn finish(mut self) -> Value {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.runner.wait().unwrap();
        let mut errors = String::new();
        self.runner
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        assert!(status.success(), "{status}: {errors}");
        assert_eq!(rest.lines().count(), 1, "{rest:?}");
        serde_json::from_str(&rest).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The children die with the runner; an error means that it has ended already.
        let all = self.all_pids();
        let _ = self.runner.kill();
        let _ = self.runner.wait();
        await_end(&all, Duration::from_secs(5));
        let _ = fs::remove_dir_all(self.directory());
    }
}

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(status.success());
}

pub fn run(arguments: &[&str]) -> Value {
    Lab::start(arguments).finish()
}

pub fn pids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|pid| u32::try_from(pid.as_u64().unwrap()).unwrap())
        .collect()
}

/// Children of any thread of `parent`: the runner starts its own from its main thread, but says so
/// nowhere.
pub fn children(parent: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| {
        !matches!(
            text.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]),
            Some(b'Z' | b'X')
        )
    })
}

/// Waits until none of `pids` runs; returns those that still do.
pub fn await_end(pids: &[u32], limit: Duration) -> Vec<u32> {
    let deadline = Instant::now() + limit;
    loop {
        let alive: Vec<u32> = pids.iter().copied().filter(|&pid| is_alive(pid)).collect();
        if alive.is_empty() || Instant::now() >= deadline {
            return alive;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A field of `/proc/PID/status`.
pub fn status_field(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap();
    line.trim().to_owned()
}

/// One answer over a connection of its own: head without its date, and body.
pub fn get(url: &str) -> (Vec<String>, String) {
    use std::io::Write;
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head
        .lines()
        .filter(|line| !line.starts_with("Date:"))
        .map(str::to_owned)
        .collect();
    (head, body.to_owned())
}
