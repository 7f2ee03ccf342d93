//! Life of the target processes, as the BPF program reports it.

use crate::sample::{Reader, WireError, wire_struct};

wire_struct! {
    /// A process event, raw.
    ProcessEvent {
        /// [`crate::kind::PROCESS`].
        kind: u32,
        /// 1: forked, 2: executed, 3: process ended.
        event: u32,
        /// CLOCK_MONOTONIC, ns.
        time_ns: u64,
        /// The process that the event is about (the child of a fork), in the recorder's namespace.
        pid: u32,
        /// Its parent, for a fork.
        parent: u32,
        /// Its name at that time.
        comm: [u8; 16],
        /// CPU time of all its threads by the scheduler's account, at its end, ns.
        cpu_ns: u64,
    }
}

/// A parsed process event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRecord {
    /// `pid` was forked by `parent` and is a target from its first instruction.
    Forked {
        /// The new process.
        pid: u32,
        /// Who forked it.
        parent: u32,
    },
    /// `pid` replaced its program.
    Executed {
        /// The process.
        pid: u32,
    },
    /// The last thread of `pid` ended.
    Ended {
        /// The process.
        pid: u32,
        /// CLOCK_MONOTONIC, ns.
        time_ns: u64,
        /// CPU time of all its threads over its life, ns.
        cpu_ns: u64,
    },
}

impl ProcessRecord {
    /// Parses one record.
    ///
    /// # Errors
    /// [`WireError`] when the bytes are no process event.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(bytes);
        if r.u32()? != crate::kind::PROCESS {
            return Err(WireError::WrongKind);
        }
        let event = r.u32()?;
        let time_ns = r.u64()?;
        let pid = r.u32()?;
        let parent = r.u32()?;
        let _comm: [u8; 16] = r.array()?;
        let cpu_ns = r.u64()?;
        match event {
            1 => Ok(Self::Forked { pid, parent }),
            2 => Ok(Self::Executed { pid }),
            3 => Ok(Self::Ended {
                pid,
                time_ns,
                cpu_ns,
            }),
            _ => Err(WireError::WrongKind),
        }
    }
}
