//! What the recorder tells the BPF program: per run, per process, and what it keeps per thread.

use crate::limits::VMS_MAX;
use crate::sample::{Reader, WireError, wire_struct};

wire_struct! {
    /// Constants of one run, fixed before the program is loaded.
    Settings {
        /// Largest copy of a user stack, in bytes.
        stack_bytes: u64,
        /// Off-CPU stretches shorter than this are only counted, in ns.
        min_block_ns: u64,
        /// Off-CPU stretches longer than this are only counted, in ns.
        max_block_ns: u64,
        /// Ring fill, in bytes, from which on every record wakes the recorder.
        wakeup_bytes: u64,
        /// Whether threads that leave their core are recorded.
        off_cpu: u32,
        /// Whether children of targets become targets.
        follow_forks: u32,
    }
}

wire_struct! {
    /// One VM of a process.
    VmEntry {
        /// Its `global_State`.
        global_state: u64,
        /// The interpreter's machine code, first byte.
        interpreter_start: u64,
        /// The interpreter's machine code, one past the last byte.
        interpreter_end: u64,
        /// Offset of `cur_L` in `global_State`; `jit_base` follows it.
        cur_l: u32,
        /// Offset of `vmstate` in `global_State`.
        vmstate: u32,
    }
}

wire_struct! {
    /// A process that is recorded.
    TargetEntry {
        /// 1: recorded; 0: only its new children are (an nginx master whose worker is recorded).
        recorded: u32,
        /// Valid entries of `vms`.
        vms_len: u32,
        /// Start of the range that covers the interpreters of all its VMs.
        interpreter_start: u64,
        /// End of that range.
        interpreter_end: u64,
        /// Its VMs.
        vms: [VmEntry; VMS_MAX],
    }
}

wire_struct! {
    /// Off-CPU account of one thread, all stretches included, also those outside the limits.
    ThreadAccount {
        /// When it left its core, ns; 0 while it runs.
        left_ns: u64,
        /// When it was woken since then, ns; 0 when not.
        woken_ns: u64,
        /// Process in the recorder's namespace.
        pid: u32,
        /// Task state when it left.
        task_state: u32,
        /// Who woke it.
        waker_pid: u32,
        /// Who woke it.
        waker_tid: u32,
        /// Who woke it.
        waker_comm: [u8; 16],
        /// Time in stretches within the limits, ns.
        kept_ns: u64,
        /// Number of those.
        kept_count: u64,
        /// Time in stretches shorter than the limit, ns.
        short_ns: u64,
        /// Number of those.
        short_count: u64,
        /// Time in stretches longer than the limit, ns.
        long_ns: u64,
        /// Number of those.
        long_count: u64,
        /// Time in the stretch during which the account began: the thread had left its core before, nobody saw where, ns.
        unseen_ns: u64,
        /// The scheduler's own account of the thread's run time when this account began, ns.
        run_first_ns: u64,
        /// The scheduler's own account when it was last read, ns.
        run_last_ns: u64,
        /// CLOCK_MONOTONIC at which the account began, ns.
        since_ns: u64,
        /// When the thread ended, ns; 0 while it lives.
        ended_ns: u64,
        /// 1 when the stack of the stretch under way is held.
        held: u32,
        /// Thread id in the recorder's namespace.
        tid: u32,
        /// 1 when the wakeup came from an interrupt.
        waker_interrupt: u32,
        /// Zero.
        padding: u32,
    }
}

impl TargetEntry {
    /// The bytes of the map value.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        bytes.extend(self.recorded.to_le_bytes());
        bytes.extend(self.vms_len.to_le_bytes());
        bytes.extend(self.interpreter_start.to_le_bytes());
        bytes.extend(self.interpreter_end.to_le_bytes());
        for vm in &self.vms {
            bytes.extend(vm.global_state.to_le_bytes());
            bytes.extend(vm.interpreter_start.to_le_bytes());
            bytes.extend(vm.interpreter_end.to_le_bytes());
            bytes.extend(vm.cur_l.to_le_bytes());
            bytes.extend(vm.vmstate.to_le_bytes());
        }
        bytes
    }
}

impl ThreadAccount {
    /// Parses a map value.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when it is too short.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(bytes);
        Ok(Self {
            left_ns: r.u64()?,
            woken_ns: r.u64()?,
            pid: r.u32()?,
            task_state: r.u32()?,
            waker_pid: r.u32()?,
            waker_tid: r.u32()?,
            waker_comm: r.array()?,
            kept_ns: r.u64()?,
            kept_count: r.u64()?,
            short_ns: r.u64()?,
            short_count: r.u64()?,
            long_ns: r.u64()?,
            long_count: r.u64()?,
            unseen_ns: r.u64()?,
            run_first_ns: r.u64()?,
            run_last_ns: r.u64()?,
            since_ns: r.u64()?,
            ended_ns: r.u64()?,
            held: r.u32()?,
            tid: r.u32()?,
            waker_interrupt: r.u32()?,
            padding: r.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_as_many_bytes_as_its_struct() {
        assert_eq!(
            TargetEntry::default().to_bytes().len(),
            size_of::<TargetEntry>()
        );
    }

    #[test]
    fn an_account_is_read_to_its_last_field() {
        let mut bytes = vec![0; size_of::<ThreadAccount>()];
        let tid = std::mem::offset_of!(ThreadAccount, tid);
        bytes[tid] = 7;
        assert_eq!(
            ThreadAccount::parse(&bytes).map(|account| account.tid),
            Ok(7)
        );
        assert_eq!(
            ThreadAccount::parse(&bytes[..tid]),
            Err(WireError::Truncated)
        );
    }
}
