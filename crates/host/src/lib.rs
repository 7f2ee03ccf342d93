//! What the machine, its processes and its threads are doing, read from /proc and /sys.
//!
//! [`find_processes`] turns what a user names (pids, a program's name, a cgroup) into processes.
//! [`sample`] watches them, the processes at the other ends of their connections, and the machine for
//! a window, and returns one [`Observation`]: counters turned into differences, each with the window
//! it was taken over, or the reason it is absent.
//!
//! The caller chooses the window and the interval, and should not run anything heavy meanwhile: this
//! process is itself one of the tenants it reports. Root sees every process; another user sees
//! its own, and what stays hidden is counted in the observation and not guessed.
//!
//! What this crate deliberately does not do: load BPF, attach to anything, signal anything, or judge.
//! Whether a reading is good or bad is decided in `throughline-analyses`. Work is never divided by
//! anything here but the wall time it was measured over.
//!
//! Everything under /proc is foreign input: names hold any byte, processes vanish between two reads,
//! counters go backwards, files are missing. Parsers take bytes and answer with an error or a
//! reason, never a panic. The parsers are our own because each takes a few fields out of files that
//! are read thousands of times, and because one damaged line must not cost the whole file; the
//! `procfs` crate supplies the clock tick.
//!
//! ```no_run
//! use std::{ops::ControlFlow, time::Duration};
//! use throughline_host::{PeerChoice, Plan, Selector, find_processes, sample};
//!
//! let targets = find_processes(&Selector { name: Some("nginx".into()), ..Selector::default() })?;
//! let observation = sample(
//!     &Plan {
//!         targets,
//!         upstream: PeerChoice::FindOnConnections,
//!         load: PeerChoice::FindOnConnections,
//!         duration: Duration::from_secs(10),
//!         interval: Duration::from_secs(1),
//!     },
//!     &mut |_elapsed| ControlFlow::Continue(()),
//! )?;
//! assert!(observation.window_ns > 0);
//! # Ok::<(), throughline_host::HostError>(())
//! ```

mod absence;
mod cgroup;
mod cores;
mod cpu_set;
mod error;
mod files;
mod frequency;
mod machine;
mod memory;
mod name;
mod network;
mod observation;
mod peers;
mod pressure;
mod process;
mod sampler;
mod sockets;
mod softirq;
mod subject;
mod task;
mod tenants;

pub use absence::{Absence, Reading};
pub use cores::CoreActivity;
pub use cpu_set::CpuSet;
pub use error::HostError;
pub use frequency::CoreFrequency;
pub use machine::{Machine, Virtualisation};
pub use memory::MemoryActivity;
pub use name::printable;
pub use network::NetworkActivity;
pub use observation::{
    CpuSource, Observation, PeerSource, Peers, ProcessActivity, Role, Tenant, ThreadActivity,
};
pub use pressure::{Pressure, PressureShares};
pub use process::{Process, Selector, find_processes};
pub use sampler::{PeerChoice, Plan, sample};
pub use softirq::SoftirqCount;
