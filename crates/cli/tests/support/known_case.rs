//! A case whose content is known: 150 on-CPU samples and two waits, with hostile names.

use std::path::{Path, PathBuf};

use throughline_profile::{
    Capture, CaptureKind, Frame, FrameKind, LuaContext, Module, OffCpu, Profile, Sample,
    SampleKind, SwitchReason, Target, Thread,
};
use throughline_store::Case;
use throughline_units::Nanos;

/// A name that would clear a terminal and run a script.
pub const HOSTILE: &str = "\x1b[2J<script>alert(1)</script>;\n";

/// `main` spends 90 samples itself and 60 in the hostile function; one wait of 30 ms, one of 10 ms for work.
pub fn write(dir: &Path) -> PathBuf {
    let case_path = dir.join("known.tl");
    let mut profile = Profile {
        capture: Capture {
            kinds: vec![CaptureKind::OnCpu, CaptureKind::OffCpu],
            rate_hz: 99,
            duration: Nanos(2_000_000_000),
            complete: true,
            targets: vec![Target {
                pid: 7,
                comm: HOSTILE.to_owned(),
                ..Target::default()
            }],
            warnings: vec![format!("remember {HOSTILE}")],
            ..Capture::default()
        },
        ..Profile::default()
    };
    let name = profile.strings.intern("main");
    let hostile = profile.strings.intern(HOSTILE);
    let path = profile.strings.intern("/usr/bin/known");
    let module = profile.modules.intern(Module {
        path,
        build_id: None,
    });
    let [main, hostile] = [name, hostile].map(|name| {
        let mut frame = Frame::new(FrameKind::Native, name);
        frame.module = Some(module);
        profile.frames.intern(frame)
    });
    let outer = profile.stacks.push(None, main);
    let inner = profile.stacks.push(Some(outer), hostile);
    let thread = profile.threads.intern(Thread {
        pid: 7,
        tid: 7,
        comm: name,
        start_ns: None,
    });
    for i in 0..150 {
        let stack = if i < 90 { outer } else { inner };
        let mut sample = Sample::on_cpu(Nanos(i * 10_000_000), thread, Some(stack));
        sample.lua = LuaContext::NoVm;
        profile.samples.push(sample);
    }
    for (ms, idle) in [(30, false), (10, true)] {
        let mut sample = Sample::on_cpu(Nanos(0), thread, Some(inner));
        sample.kind = SampleKind::OffCpu(OffCpu {
            duration: Nanos(ms * 1_000_000),
            runnable: None,
            reason: SwitchReason::Voluntary,
            waker: None,
            idle,
        });
        profile.samples.push(sample);
    }
    profile.ledger.taken = 155;
    profile.ledger.kept = 152;
    profile.ledger.lose("ring_full", 3);
    let case = Case::create_or_open(&case_path).expect("a new case");
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("all of it written");
    case_path
}
