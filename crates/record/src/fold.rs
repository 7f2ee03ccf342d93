//! From a record to a sample of the profile: unwound, mixed and named.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use throughline_profile::{
    Flags, Frame, FrameId, FrameKind, LuaContext, OffCpu, Profile, Sample, SampleKind,
    SwitchReason, Thread, VmState,
};
use throughline_units::Nanos;
use throughline_wire::{BaseSource, SampleRecord, fault, kind};

use crate::category::Categories;
use crate::function_names::FunctionNames;
use crate::image::Images;
use crate::inlined::InMachineCode;
use crate::kernel_names::KernelNames;
use crate::lua_stack::{Callee, LuaStacks};
use crate::lua_vm::NamingContext;
use crate::process::Process;
use crate::unwind::{End, NativeFrame, NativeKind, VmFrames, lua_thread, saved_pc, unwind};

/// Kernel functions in which a thread waits for work to arrive, not for the result of work.
const IDLE_WAITS: [&str; 7] = [
    "ep_poll",
    "do_epoll_wait",
    "inet_csk_accept",
    "unix_accept",
    "do_sigtimedwait",
    "sigsuspend",
    "io_cqring_wait",
];

/// `g->vmstate` (inverted `LJ_VMST_C`) while the VM hands control back to C: what it unwinds is no Lua frame any more.
const LEAVING_LUA: i32 = !1;

const LUA_FAULTS: u32 = fault::LUA_SLOT
    | fault::LUA_FUNCTION
    | fault::LUA_NOT_FUNCTION
    | fault::LUA_INSTRUCTION
    | fault::LUA_DEPTH;

/// Everything that turns records into samples, and the profile that they go to.
pub struct Folder {
    /// The profile being filled.
    pub profile: Profile,
    /// Program files, shared by all processes.
    pub images: Images,
    start: Nanos,
    kernel: KernelNames,
    function_names: FunctionNames,
    idle_frames: FxHashMap<FrameId, bool>,
    categories: Categories,
    native: Vec<NativeFrame>,
    callees: Vec<Callee>,
    stack: Vec<FrameId>,
}

impl Folder {
    /// A folder for a capture that began at `start` (CLOCK_MONOTONIC).
    #[must_use]
    pub fn new(profile: Profile, images: Images, kernel_namer: OwnedFd, start: Nanos) -> Self {
        Self {
            profile,
            images,
            start,
            kernel: KernelNames::new(kernel_namer),
            function_names: FunctionNames::default(),
            idle_frames: FxHashMap::default(),
            categories: Categories::default(),
            native: Vec::new(),
            callees: Vec::new(),
            stack: Vec::new(),
        }
    }

    /// Times of samples count from here.
    pub fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Adds the sample of one record of a known process.
    pub fn fold(&mut self, process: &mut Process, record: &SampleRecord<'_>) {
        let now = Nanos(record.header.time_ns);
        self.stack.clear();
        for address in record.kernel() {
            self.stack
                .push(self.kernel.frame(&mut self.profile, address));
        }
        let kernel_frames = self.stack.len();
        let end = self.walk_native(process, record, now);
        let (vm_frames, lua_frames, mut flags) = self.mix(process, record, now);
        match end {
            End::Complete => {}
            End::Truncated => flags.insert(Flags::STACK_TRUNCATED),
            End::Failed => flags.insert(Flags::NATIVE_UNWIND_INCOMPLETE),
        }
        for (bit, flag) in [
            (fault::LUA_DEPTH, Flags::LUA_TRUNCATED),
            (fault::NO_KERNEL_STACK, Flags::NO_KERNEL_STACK),
        ] {
            if record.header.faults & bit != 0 {
                flags.insert(flag);
            }
        }
        let leaf = self
            .stack
            .first()
            .map(|&frame| self.profile.frames.get(frame));
        if leaf.is_none_or(|frame| frame.name_reason.is_some() && !frame.kind.is_lua()) {
            flags.insert(Flags::UNSYMBOLISED_LEAF);
        }
        for (flag, name) in Flags::NAMED {
            if flags.contains(flag) {
                self.profile.ledger.flag(name, 1);
            }
        }
        let lua = lua_context(process, record, &self.native, end, vm_frames, lua_frames);
        if vm_frames == 0 && record.header.vm == 0 && runs_in(&self.native, &process.interpreters) {
            process.vm_search_due = true;
        }
        let kind = self.kind(record, kernel_frames, lua);
        let category = (kind == SampleKind::OnCpu).then(|| {
            let (kernel, user) = self.stack.split_at(kernel_frames);
            self.categories
                .of_sample(&self.profile, process, record, kernel, user, &self.native)
        });
        let thread = self.thread(record.header.pid, record.header.tid, &record.header.comm);
        let stack = self
            .profile
            .stacks
            .push_all(self.stack.iter().rev().copied());
        self.profile.samples.push(Sample {
            time: now - self.start,
            thread,
            stack,
            kind,
            lua,
            vm_state: (record.header.vm != 0).then_some(VmState(record.header.vm_state)),
            category,
            flags,
        });
    }

    fn thread(&mut self, pid: u32, tid: u32, comm: &[u8]) -> throughline_profile::ThreadId {
        let end = comm
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(comm.len());
        let comm = self
            .profile
            .strings
            .intern(&String::from_utf8_lossy(&comm[..end]));
        self.profile.threads.intern(Thread {
            pid,
            tid,
            comm,
            start_ns: None,
        })
    }

    /// Native frames into `self.native`; mappings and machine code are read again when an address is not known.
    fn walk_native(&mut self, process: &mut Process, record: &SampleRecord<'_>, now: Nanos) -> End {
        let mut end = self.unwind_once(process, record);
        let Process {
            space, memory, vms, ..
        } = process;
        let strange = self.native.iter().any(|frame| {
            frame.kind == NativeKind::Code
                && !matches!(
                    space.place(frame.lookup),
                    crate::address_space::Place::Image(_)
                )
        });
        if strange {
            let mut again = false;
            for vm in vms
                .iter_mut()
                .filter(|vm| vm.vm.global_state == record.header.vm)
            {
                again |= vm.read_machine_code(memory, now);
            }
            again |= process.refresh(now, &mut self.images);
            if again {
                end = self.unwind_once(process, record);
            }
        }
        end
    }

    fn unwind_once(&mut self, process: &mut Process, record: &SampleRecord<'_>) -> End {
        let vm = process
            .vms
            .iter()
            .find(|vm| vm.vm.global_state == record.header.vm)
            .map(|vm| VmFrames::of_sample(record, vm.interpreter.clone(), vm.machine_code.clone()));
        unwind(&mut process.space, record, vm.as_ref(), &mut self.native)
    }

    /// Native and Lua frames into `self.stack`, innermost first. Counts VM frames and Lua frames.
    fn mix(
        &mut self,
        process: &mut Process,
        record: &SampleRecord<'_>,
        now: Nanos,
    ) -> (usize, usize, Flags) {
        let mut flags = Flags::default();
        let mut lua = LuaStacks::of_sample(record);
        let (mut vm_frames, mut lua_frames) = (0, 0);
        let native = std::mem::take(&mut self.native);
        let mut called_from_vm = false;
        for (i, frame) in native.iter().enumerate() {
            if frame.guessed {
                flags.insert(Flags::GUESSED_FRAME);
            }
            let cframe = match frame.kind {
                NativeKind::Code => {
                    let named: Rc<[FrameId]> = process.names.frames(
                        &mut self.profile,
                        &process.space,
                        process.memory.pid(),
                        frame.lookup,
                        now,
                    );
                    self.stack.extend(named.iter().copied());
                    called_from_vm = true;
                    continue;
                }
                NativeKind::Interpreter { cframe } | NativeKind::Trace { cframe } => cframe,
            };
            vm_frames += 1;
            self.push_vm_frame(process, record, frame);
            let placed = self.push_lua(
                process,
                record,
                &mut lua,
                LuaSegment {
                    lookup: frame.lookup,
                    cframe,
                    is_leaf: i == 0,
                    called_from_vm,
                    kind: frame.kind,
                    now,
                },
                &mut flags,
            );
            lua_frames += placed;
            called_from_vm = false;
        }
        self.native = native;
        (vm_frames, lua_frames, flags)
    }

    /// The bytecode handler, or the machine code of a trace.
    fn push_vm_frame(&mut self, process: &Process, record: &SampleRecord<'_>, frame: &NativeFrame) {
        let vm = process
            .vms
            .iter()
            .find(|vm| vm.vm.global_state == record.header.vm);
        let strings = &mut self.profile.strings;
        let made = match (frame.kind, vm.and_then(|vm| vm.handler_name(frame.lookup))) {
            (NativeKind::Trace { .. }, _) => {
                Frame::new(FrameKind::Jit, strings.intern("[JIT code]"))
            }
            (_, Some(handler)) => Frame::new(FrameKind::Interpreter, strings.intern(handler)),
            (_, None) => {
                let mut made = Frame::new(
                    FrameKind::Interpreter,
                    strings.intern("[LuaJIT interpreter]"),
                );
                made.name_reason = Some(strings.intern("between_handlers"));
                made
            }
        };
        self.stack.push(self.profile.frames.intern(made));
    }

    /// The Lua frames that run in one VM frame.
    fn push_lua(
        &mut self,
        process: &mut Process,
        record: &SampleRecord<'_>,
        lua: &mut LuaStacks,
        segment: LuaSegment,
        flags: &mut Flags,
    ) -> usize {
        let Some(thread) = lua_thread(record, segment.cframe) else {
            return 0;
        };
        let Process {
            vms,
            memory,
            names,
            space,
            ..
        } = process;
        let Some(vm) = vms
            .iter_mut()
            .find(|vm| vm.vm.global_state == record.header.vm)
        else {
            return 0;
        };
        let inlined = in_machine_code(record, &segment, vm)
            .zip(lua.innermost_frame(thread))
            .and_then(|(place, base)| {
                let found = vm.inlined(memory, place, base);
                found.map_err(|reason| flags.insert(reason.flag())).ok()
            });
        let mut callees = std::mem::take(&mut self.callees);
        let innermost = lua.segment(thread, inlined.as_deref(), &mut callees);
        let mut placed = 0;
        for (depth, callee) in callees.iter().enumerate() {
            match *callee {
                // The C function that the VM called is the native frame that was just pushed.
                Callee::C { .. } if depth == 0 && segment.called_from_vm => {}
                Callee::C { address } => {
                    let pid = memory.pid();
                    let named = names.frames(&mut self.profile, space, pid, address, segment.now);
                    self.stack.extend(named.iter().copied());
                }
                Callee::Builtin { ffid } => {
                    let name = self.profile.strings.intern(&vm.builtin_name(ffid));
                    let frame = Frame::new(FrameKind::LuaBuiltin, name);
                    self.stack.push(self.profile.frames.intern(frame));
                    placed += 1;
                }
                Callee::Lua { code, pc } => {
                    let pc = pc.or_else(|| top_pc(vm, memory, record, &segment, innermost, code));
                    let mut context = NamingContext {
                        profile: &mut self.profile,
                        memory,
                        names: &mut self.function_names,
                        now: segment.now,
                    };
                    let (frame, readable) = vm.lua_frame(&mut context, code, pc.unwrap_or(0));
                    if !readable {
                        flags.insert(Flags::LUA_PROTO_UNREADABLE);
                    }
                    let leaf = depth == 0 && inlined.as_ref().is_some_and(|it| it.at_or_inside);
                    let frame = if leaf {
                        flags.insert(Flags::LUA_AT_OR_INSIDE);
                        guessed(&mut self.profile, frame)
                    } else {
                        frame
                    };
                    self.stack.push(frame);
                    placed += 1;
                }
            }
        }
        self.callees = callees;
        placed
    }

    fn kind(
        &mut self,
        record: &SampleRecord<'_>,
        kernel_frames: usize,
        lua: LuaContext,
    ) -> SampleKind {
        let h = &record.header;
        if h.kind == kind::ON_CPU {
            return SampleKind::OnCpu;
        }
        let waker = if h.waker_interrupt != 0 {
            Some(self.thread(0, 0, b"[interrupt]"))
        } else {
            (h.waker_tid != 0).then(|| self.thread(h.waker_pid, h.waker_tid, &h.waker_comm))
        };
        let Self {
            profile,
            stack,
            idle_frames,
            ..
        } = self;
        let waits_for_work = lua != LuaContext::With
            && stack.iter().take(kernel_frames).any(|&frame| {
                *idle_frames.entry(frame).or_insert_with(|| {
                    let name = profile.strings.get(profile.frames.get(frame).name);
                    IDLE_WAITS.iter().any(|wait| name.contains(wait))
                })
            });
        let voluntary = h.task_state != 0;
        SampleKind::OffCpu(OffCpu {
            duration: Nanos(h.blocked_ns),
            runnable: (h.runnable_ns != u64::MAX).then_some(Nanos(h.runnable_ns)),
            reason: if voluntary {
                SwitchReason::Voluntary
            } else {
                SwitchReason::Preempted
            },
            waker,
            idle: voluntary && waits_for_work,
        })
    }
}

struct LuaSegment {
    lookup: u64,
    cframe: u64,
    is_leaf: bool,
    called_from_vm: bool,
    kind: NativeKind,
    now: Nanos,
}

/// The same place, marked as inferred.
fn guessed(profile: &mut Profile, frame: FrameId) -> FrameId {
    let mut frame = profile.frames.get(frame).clone();
    frame.guessed = true;
    profile.frames.intern(frame)
}

/// Where a segment runs in machine code whose base the walk of the Lua stack started from: in a trace, or in a subroutine of
/// the interpreter that a trace has called, which has nothing but its return address on the stack.
fn in_machine_code(
    record: &SampleRecord<'_>,
    segment: &LuaSegment,
    vm: &crate::lua_vm::LuaVm,
) -> Option<InMachineCode> {
    let address = match segment.kind {
        NativeKind::Trace { .. } => segment.lookup,
        NativeKind::Interpreter { .. } if segment.is_leaf => {
            record.stack_word(record.header.sp)?.wrapping_sub(1)
        }
        _ => return None,
    };
    let known = vm.machine_code.iter().any(|area| area.contains(&address));
    (known && record.base_source() == BaseSource::JitBase).then_some(InMachineCode {
        address,
        vm_state: record.header.vm_state,
        now: segment.now,
    })
}

/// The PC of the innermost Lua function of a segment: the trace's start in machine code, the interpreter's PC register while it
/// runs, else the PC that the VM frame saved when it called out.
fn top_pc(
    vm: &mut crate::lua_vm::LuaVm,
    memory: &throughline_target::LiveProcess,
    record: &SampleRecord<'_>,
    segment: &LuaSegment,
    innermost: bool,
    code: u64,
) -> Option<u64> {
    if matches!(segment.kind, NativeKind::Trace { .. }) {
        let number = u32::try_from(record.header.vm_state).ok()?;
        let start = vm.trace_start(memory, number, segment.now)?;
        return vm
            .contains(memory, code, start, segment.now)
            .then_some(start);
    }
    let register = (innermost && segment.is_leaf && record.base_source() == BaseSource::Register)
        .then_some(record.header.bx);
    register
        .into_iter()
        .chain(saved_pc(record, segment.cframe))
        .find(|&pc| vm.contains(memory, code, pc, segment.now))
}

/// Whether any of the frames lies in one of the ranges.
fn runs_in(native: &[NativeFrame], ranges: &[Range<u64>]) -> bool {
    native
        .iter()
        .any(|frame| ranges.iter().any(|range| range.contains(&frame.lookup)))
}

fn lua_context(
    process: &Process,
    record: &SampleRecord<'_>,
    native: &[NativeFrame],
    end: End,
    vm_frames: usize,
    lua_frames: usize,
) -> LuaContext {
    let in_interpreter = || runs_in(native, &process.interpreters);
    if lua_frames > 0 {
        LuaContext::With
    } else if vm_frames > 0 {
        if record.header.faults & LUA_FAULTS != 0 && record.header.vm_state != LEAVING_LUA {
            LuaContext::WalkFailed
        } else {
            LuaContext::VmEntry
        }
    } else if process.vms.is_empty() {
        if runs_in(native, &process.unreadable) || in_interpreter() {
            LuaContext::VmUnreadable
        } else {
            LuaContext::NoVm
        }
    } else if in_interpreter() {
        // No VM runs on this thread yet, or none any more, unless it has called something.
        let callers = native.get(1..).unwrap_or_default();
        if runs_in(callers, &process.interpreters) {
            LuaContext::WalkFailed
        } else {
            LuaContext::VmEntry
        }
    } else if end == End::Complete {
        LuaContext::NativeOnly
    } else {
        LuaContext::StackCut
    }
}
