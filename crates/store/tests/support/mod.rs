//! A profile that uses every table and every column, and a comparison of whole profiles.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod mount;

use throughline_profile::{
    Capture, CaptureKind, Category, CategorySet, Classified, Flags, Frame, FrameKind, LuaContext,
    LuaVm, Module, OffCpu, Profile, RequestCount, Sample, SampleKind, SwitchReason, Target, Thread,
    VmState,
};
use throughline_units::Nanos;

/// Everything the model can hold: all frame kinds and Lua contexts, every option present and absent.
pub fn full_profile() -> Profile {
    let mut profile = Profile {
        capture: full_capture(),
        ..Profile::default()
    };
    add_samples(&mut profile, 0);
    count(&mut profile, 2 * LuaContext::ALL.len() as u64);
    profile
}

/// What a file of format 1 holds of a profile.
pub fn as_format_1(mut profile: Profile) -> Profile {
    profile.capture.requests = RequestCount::default();
    for mut sample in profile.samples.drain() {
        sample.category = None;
        profile.samples.push(sample);
    }
    profile
}

/// Ledgers for this many samples, half of them off-CPU, and some losses.
fn count(profile: &mut Profile, kept: u64) {
    for (ledger, share) in [
        (&mut profile.ledger, 1),
        (&mut profile.capture.ledger_on_cpu, 2),
        (&mut profile.capture.ledger_off_cpu, 2),
    ] {
        ledger.taken = kept / share + 3;
        ledger.kept = kept / share;
        ledger.lose("ring_full", 1);
        ledger.lose("thread_gone", 2);
        ledger.flag("stack_truncated", 4);
    }
}

fn full_capture() -> Capture {
    Capture {
        number: 1,
        kinds: vec![CaptureKind::OnCpu, CaptureKind::OffCpu],
        rate_hz: 99,
        duration: Nanos(30_000_000_000),
        started_unix_ns: 1_750_000_000_000_000_000,
        host: "gateway-7".into(),
        kernel: "6.1.0-37-amd64".into(),
        tool: "0.1.0".into(),
        min_block_ns: 1_000_000,
        max_block_ns: u64::MAX,
        targets: vec![
            Target {
                pid: 4242,
                comm: "nginx".into(),
                exe: "/usr/sbin/nginx".into(),
                lua_vms: vec![
                    LuaVm {
                        global_state: 0x7f12_3456_7890,
                        version: "LuaJIT 2.1.20230119".into(),
                        layout: "openresty-2023".into(),
                        gc64: true,
                    },
                    LuaVm {
                        global_state: 0xffff_8000_0000_0010,
                        ..LuaVm::default()
                    },
                ],
                lua_unreadable: None,
                cpu_ns: Some(29_000_000_000),
                joined: Nanos(0),
                ended: None,
            },
            Target {
                pid: u32::MAX,
                comm: "\x1b[31mevil\n".into(),
                exe: String::new(),
                lua_vms: Vec::new(),
                lua_unreadable: Some("PUC Lua 5.4".into()),
                cpu_ns: None,
                joined: Nanos(12),
                ended: Some(Nanos(13)),
            },
        ],
        bpf_ns_per_sample_mean: Some(9_800.25),
        requests: RequestCount::Counted {
            count: 301_200,
            source: "uprobe:ngx_http_free_request".into(),
        },
        recorder_cpu: Nanos(250_000_000),
        complete: true,
        warnings: vec!["rate divides 1000".into(), "no symbols: <script>".into()],
        ..Capture::default()
    }
}

/// Fourteen samples, one of each kind for every Lua context; `round` makes them differ from others.
pub fn add_samples(profile: &mut Profile, round: u32) {
    let stack = push_all_kinds(profile, round);
    let comm = profile.strings.intern("nginx");
    let thread = profile.threads.intern(Thread {
        pid: 4242,
        tid: 4242 + round,
        comm,
        start_ns: Some(77),
    });
    let waker = profile.threads.intern(Thread {
        pid: u32::MAX,
        tid: 0,
        comm,
        start_ns: None,
    });
    for (i, lua) in LuaContext::ALL.into_iter().enumerate() {
        let i = i as u64;
        let on_cpu = Sample {
            time: Nanos(u64::from(round) * 1_000_000 + i),
            thread,
            stack: (i != 3).then_some(stack),
            kind: SampleKind::OnCpu,
            lua,
            vm_state: i.is_multiple_of(2).then_some(VmState(-(i as i32))),
            category: (i != 5).then(|| Classified {
                category: Category::ALL[3 * i as usize],
                may_be: CategorySet(i as u32 & 1).with(Category::KernelOther),
            }),
            flags: Flags(1 << i),
        };
        profile.samples.push(on_cpu.clone());
        profile.samples.push(Sample {
            kind: SampleKind::OffCpu(OffCpu {
                duration: Nanos(1_000 + i),
                runnable: i.is_multiple_of(3).then_some(Nanos(i)),
                reason: [SwitchReason::Voluntary, SwitchReason::Preempted][i as usize % 2],
                waker: (i % 2 == 1).then_some(waker),
                idle: i.is_multiple_of(4),
            }),
            category: None,
            ..on_cpu
        });
    }
}

fn push_all_kinds(profile: &mut Profile, round: u32) -> throughline_profile::StackId {
    let path = profile.strings.intern("/usr/lib/libluajit-5.1.so.2");
    let build_id = profile.strings.intern("00ffab");
    let module = profile.modules.intern(Module {
        path,
        build_id: Some(build_id),
    });
    let vdso = profile.strings.intern("[vdso]");
    let vdso = profile.modules.intern(Module {
        path: vdso,
        build_id: None,
    });
    let mut frames = Vec::new();
    for (i, kind) in FrameKind::ALL.into_iter().enumerate() {
        let name = profile
            .strings
            .intern(&format!("function {i} <\u{1b}[2J\0größe> {round}"));
        let mut frame = Frame::new(kind, name);
        if i % 2 == 0 {
            frame.name_reason = Some(profile.strings.intern("no_symbol_table"));
            frame.source = Some(profile.strings.intern("@/opt/plugin.lua"));
            frame.module = Some(if i % 4 == 0 { module } else { vdso });
        }
        frame.line = i as u32;
        frame.first_line = u32::MAX - i as u32;
        frame.address = 0xffff_ffff_8100_0000 + i as u64;
        frame.inlined = i % 3 == 0;
        frame.guessed = i % 3 == 1;
        frames.push(profile.frames.intern(frame));
    }
    profile.stacks.push_all(frames).expect("eight frames")
}

/// Panics at the first difference of any table.
pub fn assert_same(left: &Profile, right: &Profile) {
    assert_eq!(left.capture, right.capture);
    assert_eq!(left.ledger, right.ledger);
    assert!(left.strings.iter().eq(right.strings.iter()), "strings");
    assert!(left.modules.iter().eq(right.modules.iter()), "modules");
    assert!(left.frames.iter().eq(right.frames.iter()), "frames");
    assert!(left.stacks.iter().eq(right.stacks.iter()), "stacks");
    assert!(left.threads.iter().eq(right.threads.iter()), "threads");
    assert!(left.samples.iter().eq(right.samples.iter()), "samples");
}
