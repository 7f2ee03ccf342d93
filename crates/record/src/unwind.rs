//! Native frames of a sample, from the copied stack.
//!
//! Rules, in this order. Code of Go: by the table that Go's own unwinder uses; it has no other. Code of files: by their unwind
//! information (framehop). Machine code of LuaJIT: the VM's own
//! frame on the C stack, which is the nearest `cframe` at or above the stack pointer. Machine code of other compilers: the
//! frame pointer when what it points to makes sense, else the next word on the stack that follows a call instruction; that
//! one is marked as guessed.

use std::ops::Range;

use framehop::x86_64::UnwindRegsX86_64;
use framehop::{Error as FramehopError, FrameAddress, Unwinder};
use throughline_symbols::GoFrame;
use throughline_wire::SampleRecord;

use crate::address_space::{AddressSpace, MappedImage, Place};

/// Frames beyond this are cut.
const FRAMES_MAX: usize = 512;
/// Size of the VM's frame on the C stack, and where it keeps what (vm_x64.dasc, CFRAME_*).
const CFRAME_BYTES: u64 = 80;
const CFRAME_L: u64 = 16;
const CFRAME_PC: u64 = 24;
const CFRAME_RBP: u64 = 64;
const CFRAME_RETURN: u64 = 72;
/// The code that leaves a trace has all registers below the VM frame.
const CFRAME_DISTANCE_MAX: u64 = 1024;
/// Other code of the interpreter is nearer to its frame, unless the frame is just built or taken down.
const CFRAME_DISTANCE_CALLED: u64 = 32;
/// Words that are looked at for a return address behind unknown machine code.
const GUESS_WORDS_MAX: u64 = 256;

/// Where a native frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeKind {
    /// A file's code, or that of another compiler.
    Code,
    /// LuaJIT's interpreter, in the VM frame at this address.
    Interpreter {
        /// Address of its frame on the C stack.
        cframe: u64,
    },
    /// Machine code of a LuaJIT trace, in the VM frame at this address.
    Trace {
        /// Address of its frame on the C stack.
        cframe: u64,
    },
}

/// One native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// Address to look up: the instruction pointer, or the byte before a return address.
    pub lookup: u64,
    /// What sort of code.
    pub kind: NativeKind,
    /// Whether the step to this frame was guessed.
    pub guessed: bool,
}

/// How the walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the process's or thread's entry.
    Complete,
    /// The copied stack was over.
    Truncated,
    /// Unwind information was missing or wrong.
    Failed,
}

/// What is known of LuaJIT on this thread, innermost VM frame first.
#[derive(Clone, Debug, Default)]
pub struct VmFrames {
    /// Addresses of VM frames on the C stack, ascending.
    pub cframes: Vec<u64>,
    /// The interpreter's machine code.
    pub interpreter: Range<u64>,
    /// Machine code of traces.
    pub machine_code: Vec<Range<u64>>,
}

impl VmFrames {
    /// Reads the VM frames of a sample off its copied stack: a word that points into the interpreter, with a known Lua thread
    /// in the right place behind it, is the return address of a call out of the VM.
    #[must_use]
    pub fn of_sample(
        record: &SampleRecord<'_>,
        interpreter: Range<u64>,
        machine_code: Vec<Range<u64>>,
    ) -> Self {
        let states = record.states();
        let mut cframes: Vec<u64> = states
            .iter()
            .map(|state| state.cframe)
            .filter(|cframe| {
                let offset = cframe.checked_sub(record.header.sp);
                offset.is_some_and(|offset| offset < u64::from(record.header.stack_len))
            })
            .collect();
        let sp = record.header.sp;
        for (i, word) in record.stack.chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            if !interpreter.contains(&u64::from_le_bytes(bytes)) {
                continue;
            }
            let cframe = sp + i as u64 * 8 + 8;
            let l = record.stack_word(cframe.wrapping_add(CFRAME_L));
            if states.iter().any(|state| Some(state.address) == l) {
                cframes.push(cframe);
            }
        }
        if interpreter.contains(&record.header.ip) {
            let l = record.stack_word(sp.wrapping_add(CFRAME_L));
            if states.iter().any(|state| Some(state.address) == l) {
                cframes.push(sp);
            }
        }
        cframes.sort_unstable();
        cframes.dedup();
        Self {
            cframes,
            interpreter,
            machine_code,
        }
    }

    /// The innermost VM frame at or above `sp`. Words may look like one by chance; a real one has a return address.
    fn nearest(&self, sp: u64, record: &SampleRecord<'_>, space: &AddressSpace) -> Option<u64> {
        self.cframes.iter().copied().find(|&cframe| {
            let return_address = record.stack_word(cframe.wrapping_add(CFRAME_RETURN));
            // Beyond the copied stack nothing can be said against it.
            cframe >= sp && return_address.is_none_or(|address| may_return_to(space, address))
        })
    }

    fn is_trace(&self, address: u64) -> bool {
        self.machine_code
            .iter()
            .any(|range| range.contains(&address))
    }
}

/// Whether nothing speaks against a return address: files that cannot be read and code made at run time tell nothing.
fn may_return_to(space: &AddressSpace, address: u64) -> bool {
    match space.place(address.wrapping_sub(1)) {
        Place::Image(mapped) => mapped.image.is_err() || space.can_return_to(address),
        Place::Anonymous => true,
        Place::Unknown => false,
    }
}

/// The Lua thread that a VM frame runs.
#[must_use]
pub fn lua_thread(record: &SampleRecord<'_>, cframe: u64) -> Option<u64> {
    record.stack_word(cframe.wrapping_add(CFRAME_L))
}

/// The PC that a VM frame saved when it last called out.
#[must_use]
pub fn saved_pc(record: &SampleRecord<'_>, cframe: u64) -> Option<u64> {
    record.stack_word(cframe.wrapping_add(CFRAME_PC))
}

struct Walk<'a> {
    record: &'a SampleRecord<'a>,
    regs: UnwindRegsX86_64,
    address: FrameAddress,
    guessed: bool,
}

impl Walk<'_> {
    fn go(&mut self, return_address: u64, sp: u64, bp: u64) -> Option<()> {
        self.address = FrameAddress::from_return_address(return_address)?;
        self.regs = UnwindRegsX86_64::new(return_address, sp, bp);
        Some(())
    }

    /// Leaves a VM frame for its C caller.
    fn leave_vm(&mut self, cframe: u64) -> Option<()> {
        let return_address = self.record.stack_word(cframe.wrapping_add(CFRAME_RETURN))?;
        let bp = self.record.stack_word(cframe.wrapping_add(CFRAME_RBP))?;
        self.go(return_address, cframe.wrapping_add(CFRAME_BYTES), bp)
    }

    /// Leaves a frame of Go for its caller, which may also be the goroutine's entry, to which nothing calls.
    fn leave_go(&mut self, bytes: u64, space: &AddressSpace) -> Option<()> {
        let at = self.regs.sp().checked_add(bytes)?;
        let return_address = self.record.stack_word(at)?;
        // Behind a switch of stacks that the table does not know (calls of the vDSO) lies something else.
        let is_code = matches!(space.place(return_address.checked_sub(1)?), Place::Image(_));
        // A function with a frame keeps its caller's frame pointer next to the return address.
        let bp = (bytes >= 8)
            .then(|| self.record.stack_word(at - 8))
            .flatten()
            .unwrap_or(self.regs.bp());
        is_code
            .then(|| self.go(return_address, at + 8, bp))
            .flatten()
    }

    /// One step by frame pointer, taken only when it leads upwards to code.
    fn by_frame_pointer(&mut self, space: &AddressSpace) -> Option<()> {
        let (sp, bp) = (self.regs.sp(), self.regs.bp());
        if bp < sp || bp & 7 != 0 {
            return None;
        }
        let return_address = self.record.stack_word(bp.checked_add(8)?)?;
        let good = match space.place(return_address.checked_sub(1)?) {
            Place::Image(_) => space.can_return_to(return_address),
            Place::Anonymous => true,
            Place::Unknown => false,
        };
        if !good {
            return None;
        }
        self.go(return_address, bp + 16, self.record.stack_word(bp)?)
    }

    /// A step out of hand-written code where its unwind information, which has one frame for all of it, is wrong: LuaJIT's
    /// subroutines (`lj_vm_mod`), and the instructions that build or take down a VM frame or that of `lj_vm_ffi_call`. The return
    /// address is at most a VM frame away; rbp is saved next to it if it is saved yet.
    fn by_top_of_stack(&mut self, space: &AddressSpace) -> Option<()> {
        let sp = self.regs.sp();
        let at = (0..CFRAME_BYTES)
            .step_by(8)
            .map(|distance| sp.wrapping_add(distance))
            .find(|&at| {
                let word = self.record.stack_word(at);
                word.is_some_and(|word| space.can_return_to(word))
            })?;
        let bp = if at == sp {
            self.regs.bp()
        } else {
            self.record.stack_word(at - 8)?
        };
        self.guessed = true;
        self.go(self.record.stack_word(at)?, at.checked_add(8)?, bp)
    }

    /// The next word on the stack that can be a return address into a file's code.
    fn by_scan(&mut self, space: &AddressSpace, limit: Option<u64>) -> Option<()> {
        let sp = self.regs.sp().checked_add(7)? & !7;
        for i in 0..GUESS_WORDS_MAX {
            let at = sp.checked_add(i * 8)?;
            if limit.is_some_and(|limit| at >= limit) {
                return None;
            }
            let word = self.record.stack_word(at)?;
            if space.can_return_to(word) {
                self.guessed = true;
                return self.go(word, at + 8, self.regs.bp());
            }
        }
        None
    }
}

fn go_frame(mapped: &MappedImage, address: u64) -> Option<GoFrame> {
    let symbols = mapped.image.as_ref().ok()?.symbols().ok()?;
    symbols.go_frame(address.wrapping_sub(mapped.bias))
}

/// Walks the native frames, innermost first.
#[must_use]
pub fn unwind(
    space: &mut AddressSpace,
    record: &SampleRecord<'_>,
    vm: Option<&VmFrames>,
    frames: &mut Vec<NativeFrame>,
) -> End {
    frames.clear();
    let h = &record.header;
    let mut walk = Walk {
        record,
        regs: UnwindRegsX86_64::new(h.ip, h.sp, h.bp),
        address: FrameAddress::from_instruction_pointer(h.ip),
        guessed: false,
    };
    while frames.len() < FRAMES_MAX {
        let lookup = walk.address.address_for_lookup();
        let sp = walk.regs.sp();
        let guessed = std::mem::take(&mut walk.guessed);
        let push = |frames: &mut Vec<NativeFrame>, kind| {
            frames.push(NativeFrame {
                lookup,
                kind,
                guessed,
            });
        };
        if let Some(vm) = vm {
            let nearest = vm.nearest(sp, record, space);
            if vm.interpreter.contains(&lookup) {
                let near = |limit| nearest.filter(|cframe| cframe - sp < limit);
                // While a trace runs the frame stands; what it calls here has any words below it.
                if near(CFRAME_DISTANCE_CALLED).is_none()
                    && frames.is_empty()
                    && h.jit_base == 0
                    && walk.by_top_of_stack(space).is_some()
                {
                    push(frames, NativeKind::Code);
                    continue;
                }
                if let Some(cframe) = near(CFRAME_DISTANCE_MAX) {
                    push(frames, NativeKind::Interpreter { cframe });
                    match walk.leave_vm(cframe) {
                        Some(()) => continue,
                        None => return End::Truncated,
                    }
                }
            } else if vm.is_trace(lookup)
                && let Some(cframe) = nearest
            {
                push(frames, NativeKind::Trace { cframe });
                match walk.leave_vm(cframe) {
                    Some(()) => continue,
                    None => return End::Truncated,
                }
            }
        }
        push(frames, NativeKind::Code);
        match space.place(lookup) {
            Place::Image(mapped) => match go_frame(mapped, lookup) {
                None => {}
                Some(GoFrame::Entry) => return End::Complete,
                Some(GoFrame::OtherStack) => return End::Truncated,
                Some(GoFrame::Caller { bytes }) => match walk.leave_go(bytes, space) {
                    Some(()) => continue,
                    None => return End::Truncated,
                },
            },
            Place::Anonymous => {
                let limit = vm.and_then(|vm| vm.nearest(sp, record, space));
                if walk
                    .by_frame_pointer(space)
                    .or_else(|| walk.by_scan(space, limit))
                    .is_some()
                {
                    continue;
                }
                return End::Failed;
            }
            Place::Unknown => {
                // A jump through a bad pointer, or code that is mapped no more: the caller's address is on top of the stack.
                if frames.len() == 1 && walk.by_scan(space, None).is_some() {
                    continue;
                }
                return End::Failed;
            }
        }
        let before = walk.regs;
        let mut read = |address: u64| record.stack_word(address).ok_or(());
        let step =
            space
                .unwinder
                .unwind_frame(walk.address, &mut walk.regs, &mut space.cache, &mut read);
        let leads_nowhere = match step {
            Ok(Some(address)) => matches!(space.place(address.wrapping_sub(1)), Place::Unknown),
            Ok(None) => false,
            Err(_) => true,
        };
        if frames.len() == 1 && leads_nowhere {
            let wrong = std::mem::replace(&mut walk.regs, before);
            if walk.by_top_of_stack(space).is_some() {
                continue;
            }
            walk.regs = wrong;
        }
        match step {
            Ok(Some(return_address)) => match FrameAddress::from_return_address(return_address) {
                Some(address) => walk.address = address,
                None => return End::Complete,
            },
            Ok(None) => return End::Complete,
            Err(FramehopError::CouldNotReadStack(at)) if at >= h.sp + u64::from(h.stack_len) => {
                return End::Truncated;
            }
            Err(_) => return End::Failed,
        }
    }
    End::Truncated
}
