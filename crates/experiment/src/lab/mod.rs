//! Published faults, reproduced by a real nginx on loopback.
//!
//! [`list`] names the labs; [`run`] starts one with its load, tells the process ids, waits, and stops
//! all that it started. The files of the labs are part of this library, so a binary that uses it
//! needs no source tree; it needs nginx with the Lua module, and says which package is missing.
//!
//! Nothing outlives the run: children get their own process groups, are ended by their process ids,
//! and carry a parent-death signal for the case that the runner itself is killed.

mod catalog;
mod cpus;
mod directory;
mod loader;
mod nginx;
mod ports;
mod requirements;
mod runner;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use catalog::{LabInfo, list};
pub use loader::LoadCommand;
pub use runner::{Cores, LabLoad, LabPlan, Pids, Ready, Summary, run};

/// Why a lab could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is no lab of this name.
    #[error("there is no lab called {name:?}; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The labs there are.
        known: String,
    },
    /// A number of the plan is out of bounds.
    #[error("{what}")]
    Plan {
        /// Which, and what is possible.
        what: String,
    },
    /// No nginx.
    #[error(
        "no nginx at {looked}; install one (Debian: apt-get install nginx) or name it with --nginx"
    )]
    NginxMissing {
        /// Where it was looked for.
        looked: String,
    },
    /// The nginx found cannot be asked for its version and options.
    #[error("{nginx} -V failed: {reason}", nginx = .nginx.display())]
    NginxBroken {
        /// The binary.
        nginx: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The Lua module is neither built in nor found as a dynamic module.
    #[error(
        "{nginx} has no Lua module: {module} is not in {looked} (Debian: apt-get install libnginx-mod-http-lua)",
        nginx = .nginx.display()
    )]
    LuaModuleMissing {
        /// The binary.
        nginx: PathBuf,
        /// The file that was looked for.
        module: &'static str,
        /// Where it was looked for.
        looked: String,
    },
    /// `resty.core`, which the Lua module loads at its start, is missing.
    #[error("resty/core.lua is not in {looked} (Debian: apt-get install lua-resty-core)")]
    RestyCoreMissing {
        /// Where it was looked for.
        looked: String,
    },
    /// The directory of the lab cannot be made or filled.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    Directory {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path of the directory cannot stand in an nginx configuration.
    #[error(
        "{path} holds characters that nginx.conf would read otherwise; choose another with --dir",
        path = .path.display()
    )]
    DirectoryName {
        /// The path.
        path: PathBuf,
    },
    /// The lab needs a file system on a disk.
    #[error(
        "this lab waits for a disk, and every place tried is in memory: {tried}; choose a directory on a disk with --dir"
    )]
    DirectoryInMemory {
        /// The directories tried.
        tried: String,
    },
    /// No free port.
    #[error("no free port on 127.0.0.1 from {from} to {to}")]
    NoFreePort {
        /// First port tried.
        from: u16,
        /// Last port tried.
        to: u16,
    },
    /// nginx ended, or did not answer in time.
    #[error("nginx ({role}) did not come up: {reason}")]
    NginxFailed {
        /// `gateway` or `upstream`.
        role: &'static str,
        /// What happened, with the last lines of its log.
        reason: String,
    },
    /// nginx ended while the lab was running.
    #[error("nginx ({role}) ended while the lab was running: {reason}")]
    NginxEnded {
        /// `gateway` or `upstream`.
        role: &'static str,
        /// The last lines of its log.
        reason: String,
    },
    /// The load generator did not start, or ended without a result.
    #[error("the load on {address} failed: {reason}")]
    LoadFailed {
        /// Where the load was to go.
        address: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// The kernel refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
