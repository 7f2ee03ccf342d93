//! Counters that the BPF program keeps per CPU: everything taken, and everything lost with its reason.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $index:literal, $name:literal;)*) => {
        /// A counter's index in the BPF program's `counters` array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[$doc])* $variant = $index,)*
        }

        impl Counter {
            /// All counters, by index.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable lower-case name; for a loss it is the name in the ledger.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// Sampling clock fired in a target.
    OnCpuTaken = 0, "on_cpu_taken";
    /// Records handed to the ring for on-CPU samples.
    OnCpuSent = 1, "on_cpu_sent";
    /// The ring had no room for an on-CPU sample.
    OnCpuRingFull = 2, "ring_full";
    /// User registers could not be read for an on-CPU sample.
    OnCpuNoRegisters = 3, "no_user_memory";
    /// Time spent in the BPF program for on-CPU samples, in ns.
    OnCpuNs = 4, "on_cpu_ns";
    /// Stretches off the core that ended within the limits and so were due as a sample.
    OffCpuTaken = 5, "off_cpu_taken";
    /// Records handed to the ring for off-CPU samples.
    OffCpuSent = 6, "off_cpu_sent";
    /// The ring had no room for an off-CPU sample.
    OffCpuRingFull = 7, "ring_full";
    /// No memory to hold the thread's stack while it was off its core.
    OffCpuNoSlot = 8, "no_slot";
    /// User registers could not be read when the thread left its core.
    OffCpuNoRegisters = 9, "no_user_memory";
    /// A process event could not be sent.
    ProcessRingFull = 10, "process_ring_full";
    /// A thread could not be accounted: the table of threads is full.
    ThreadTableFull = 11, "thread_table_full";
    /// A child of a target could not become one: the table of targets is full.
    TargetTableFull = 12, "target_table_full";
    /// Requests that targets gave back.
    RequestsFinished = 13, "requests_finished";
}
