//! One sample as the BPF program sends it.
//!
//! Layout: [`SampleHeader`], then `stack_len` bytes of the user stack from `sp` upwards, then `lua_len`
//! [`LuaFrame`]s (innermost first within each state, states in order), then `kernel_len` return addresses of the
//! kernel (8 bytes each, innermost first). All little-endian.

use crate::limits::{KERNEL_FRAMES_MAX, LUA_FRAMES_MAX, LUA_STATES_MAX, STACK_BYTES_MAX};

/// One Lua frame, raw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LuaFrame {
    /// A Lua function's first bytecode (`GCfuncL.pc`), or the C function (`GCfuncC.f`) when `ffid` is not 0.
    pub code: u64,
    /// The frame's link word (`FRAME_*` type in the low bits, or the caller's PC).
    pub link: u64,
    /// The caller's PC of a continuation frame, else 0.
    pub continuation_pc: u64,
    /// 0: Lua function; 1: C function; above: a fast function's number; [`LuaFrame::DUMMY`]: the dummy frame.
    pub ffid: u32,
    /// Index into [`SampleHeader::states`].
    pub state: u32,
}

impl LuaFrame {
    /// `ffid` of the dummy frame at the bottom of a coroutine's stack.
    pub const DUMMY: u32 = 0xfff;
}

/// One Lua thread (`lua_State`) found on the C stack, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LuaState {
    /// Its address.
    pub address: u64,
    /// Where the walk started.
    pub base: u64,
    /// `L->cframe`, low bits cleared: the innermost C frame of the VM for this state.
    pub cframe: u64,
    /// Number of frames walked.
    pub frames: u64,
}

/// Where the base of the innermost Lua frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum BaseSource {
    /// No Lua stack was walked.
    None = 0,
    /// The interpreter's BASE register.
    Register = 1,
    /// `g->jit_base`: a trace is running.
    JitBase = 2,
    /// `L->base`.
    StateBase = 3,
    /// In the interpreter, but its register did not point into the Lua stack: `L->base` was used.
    StateBaseInInterpreter = 4,
}

impl BaseSource {
    fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Register,
            2 => Self::JitBase,
            3 => Self::StateBase,
            4 => Self::StateBaseInInterpreter,
            _ => Self::None,
        }
    }
}

macro_rules! wire_struct {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            /// Every field with its offset in bytes, for the C side's assertions.
            pub const OFFSETS: &'static [(&'static str, usize)] = &[
                $((stringify!($field), std::mem::offset_of!($name, $field)),)*
            ];
        }
    };
}
pub(crate) use wire_struct;

wire_struct! {
    /// The fixed part of a sample.
    SampleHeader {
        /// [`crate::kind`].
        kind: u32,
        /// [`crate::fault`] bits.
        faults: u32,
        /// CLOCK_MONOTONIC, ns: when sampled, or when the thread left its core.
        time_ns: u64,
        /// Process id in the recorder's namespace.
        pid: u32,
        /// Thread id in the recorder's namespace.
        tid: u32,
        /// The thread's name, NUL-padded.
        comm: [u8; 16],
        /// User instruction pointer.
        ip: u64,
        /// User stack pointer.
        sp: u64,
        /// User frame pointer.
        bp: u64,
        /// User rbx: the interpreter's PC while it runs.
        bx: u64,
        /// User r14: the interpreter's DISPATCH while it runs.
        r14: u64,
        /// Off-CPU: ns from leaving the core until running again.
        blocked_ns: u64,
        /// Off-CPU: ns from the wakeup until running again; all ones when no wakeup was seen.
        runnable_ns: u64,
        /// Off-CPU: the waker's process and thread; 0 when not seen.
        waker_pid: u32,
        /// Off-CPU: see `waker_pid`.
        waker_tid: u32,
        /// Off-CPU: the waker's name.
        waker_comm: [u8; 16],
        /// Off-CPU: 1 when the wakeup came from an interrupt, so that the waker is whoever was interrupted.
        waker_interrupt: u32,
        /// Off-CPU: task state when it left (0: runnable, so preempted).
        task_state: u32,
        /// 1 when the thread was in the kernel.
        in_kernel: u32,
        /// Zero.
        padding: u32,
        /// `global_State` of the VM that runs on this thread, 0 when none does.
        vm: u64,
        /// `g->jit_base`.
        jit_base: u64,
        /// `g->vmstate`.
        vm_state: i32,
        /// [`BaseSource`] code.
        base_source: u32,
        /// Bytes of user stack that follow the header.
        stack_len: u32,
        /// Lua frames that follow the stack.
        lua_len: u32,
        /// Kernel frames that follow the Lua frames.
        kernel_len: u32,
        /// Valid entries of `states`.
        states_len: u32,
        /// Lua threads on this C stack.
        states: [LuaState; LUA_STATES_MAX],
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than its header or than its header says.
    Truncated,
    /// A count beyond its limit.
    LimitExceeded,
    /// Not the kind that was asked for.
    WrongKind,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "record is shorter than its header says",
            Self::LimitExceeded => "record claims more entries than a record can carry",
            Self::WrongKind => "record is of another kind",
        })
    }
}

impl std::error::Error for WireError {}

/// A parsed sample; borrows the ring's bytes.
#[derive(Clone, Copy, Debug)]
pub struct SampleRecord<'a> {
    /// The fixed part.
    pub header: SampleHeader,
    /// User stack from `header.sp` upwards.
    pub stack: &'a [u8],
    kernel: &'a [u8],
    lua: &'a [u8],
}

/// The kind code of any record, `None` when it is too short to have one.
#[must_use]
pub fn record_kind(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes)
}

impl<'a> SampleRecord<'a> {
    /// Checks all lengths and splits a record into its parts.
    ///
    /// # Errors
    /// [`WireError`] when the bytes are no sample; nothing of them is used then.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header_len = size_of::<SampleHeader>();
        if bytes.len() < header_len {
            return Err(WireError::Truncated);
        }
        let header = SampleHeader::from_bytes(bytes)?;
        if header.kind != crate::kind::ON_CPU && header.kind != crate::kind::OFF_CPU {
            return Err(WireError::WrongKind);
        }
        let (stack, kernel, lua) = (
            header.stack_len as usize,
            header.kernel_len as usize,
            header.lua_len as usize,
        );
        if stack > STACK_BYTES_MAX
            || kernel > KERNEL_FRAMES_MAX
            || lua > LUA_FRAMES_MAX
            || header.states_len as usize > LUA_STATES_MAX
        {
            return Err(WireError::LimitExceeded);
        }
        let rest = &bytes[header_len..];
        let (kernel, lua) = (kernel * 8, lua * size_of::<LuaFrame>());
        if rest.len() < stack + kernel + lua {
            return Err(WireError::Truncated);
        }
        Ok(Self {
            header,
            stack: &rest[..stack],
            lua: &rest[stack..stack + lua],
            kernel: &rest[stack + lua..stack + lua + kernel],
        })
    }

    /// Kernel addresses, innermost first.
    pub fn kernel(&self) -> impl Iterator<Item = u64> + 'a {
        self.kernel.chunks_exact(8).map(read_u64)
    }

    /// Lua frames, innermost first within each state.
    pub fn lua(&self) -> impl Iterator<Item = LuaFrame> + 'a {
        self.lua.chunks_exact(size_of::<LuaFrame>()).map(|chunk| {
            let tail = read_u64(&chunk[24..]);
            LuaFrame {
                code: read_u64(chunk),
                link: read_u64(&chunk[8..]),
                continuation_pc: read_u64(&chunk[16..]),
                ffid: tail as u32,
                state: (tail >> 32) as u32,
            }
        })
    }

    /// The Lua threads on this C stack, innermost first.
    #[must_use]
    pub fn states(&self) -> &[LuaState] {
        &self.header.states[..self.header.states_len as usize]
    }

    /// Where the innermost Lua frame's base came from.
    #[must_use]
    pub fn base_source(&self) -> BaseSource {
        BaseSource::from_code(self.header.base_source)
    }

    /// The 8 bytes at a user address, when they lie in the copied stack.
    #[must_use]
    pub fn stack_word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.header.sp)?).ok()?;
        self.stack.get(offset..offset.checked_add(8)?).map(read_u64)
    }
}

fn read_u64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// Reads little-endian fields in order; every read is checked.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }
}

impl SampleHeader {
    fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(bytes);
        Ok(Self {
            kind: r.u32()?,
            faults: r.u32()?,
            time_ns: r.u64()?,
            pid: r.u32()?,
            tid: r.u32()?,
            comm: r.array()?,
            ip: r.u64()?,
            sp: r.u64()?,
            bp: r.u64()?,
            bx: r.u64()?,
            r14: r.u64()?,
            blocked_ns: r.u64()?,
            runnable_ns: r.u64()?,
            waker_pid: r.u32()?,
            waker_tid: r.u32()?,
            waker_comm: r.array()?,
            waker_interrupt: r.u32()?,
            task_state: r.u32()?,
            in_kernel: r.u32()?,
            padding: r.u32()?,
            vm: r.u64()?,
            jit_base: r.u64()?,
            vm_state: r.u32()?.cast_signed(),
            base_source: r.u32()?,
            stack_len: r.u32()?,
            lua_len: r.u32()?,
            kernel_len: r.u32()?,
            states_len: r.u32()?,
            states: {
                let mut states = [LuaState::default(); LUA_STATES_MAX];
                for state in &mut states {
                    *state = LuaState {
                        address: r.u64()?,
                        base: r.u64()?,
                        cframe: r.u64()?,
                        frames: r.u64()?,
                    };
                }
                states
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_field_by_field_consumes_exactly_the_struct() {
        // The reader above is written by hand; a field forgotten there would shift all later ones.
        let bytes: Vec<u8> = (0..size_of::<SampleHeader>()).map(|i| i as u8).collect();
        let header = SampleHeader::from_bytes(&bytes).expect("long enough");
        let at = |name: &str| {
            SampleHeader::OFFSETS
                .iter()
                .find(|(n, _)| *n == name)
                .expect("a field")
                .1
        };
        assert_eq!(
            header.states[0].address.to_le_bytes()[0],
            at("states") as u8
        );
        assert_eq!(header.states_len.to_le_bytes()[0], at("states_len") as u8);
        assert_eq!(header.vm.to_le_bytes()[0], at("vm") as u8);
        assert_eq!(header.ip.to_le_bytes()[0], at("ip") as u8);
    }

    #[test]
    fn a_record_that_claims_more_than_it_has_is_refused() {
        let mut bytes = vec![0; size_of::<SampleHeader>()];
        bytes[0] = 1;
        assert!(SampleRecord::parse(&bytes).is_ok());
        let at = |name: &str| {
            SampleHeader::OFFSETS
                .iter()
                .find(|(n, _)| *n == name)
                .expect("a field")
                .1
        };
        bytes[at("stack_len")] = 8;
        assert_eq!(
            SampleRecord::parse(&bytes).err(),
            Some(WireError::Truncated)
        );
        bytes[at("stack_len") + 3] = 1;
        assert_eq!(
            SampleRecord::parse(&bytes).err(),
            Some(WireError::LimitExceeded)
        );
        assert_eq!(
            SampleRecord::parse(&bytes[..40]).err(),
            Some(WireError::Truncated)
        );
    }
}
