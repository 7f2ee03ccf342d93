//! What is written comes back.

mod support;

use support::{add_samples, assert_same, full_profile};
use throughline_profile::{Capture, LuaContext, Measure, Profile};
use throughline_store::{Case, StoreError};

#[test]
fn everything_in_the_model_comes_back_as_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a new case");
    let mut profile = full_profile();
    let whole = profile.clone();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("enough space");

    let loaded = case.load(None).expect("a capture");
    assert!(loaded.damage.is_empty(), "{}", loaded.damage);
    assert_same(&loaded.profile, &whole);
}

#[test]
fn flushes_in_pieces_make_the_same_capture_as_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a new case");
    let mut growing = full_profile();
    let mut whole = full_profile();
    let mut writer = case.begin_capture(&growing.capture).expect("a capture");
    for round in 1..4 {
        let flushed = writer.flush(&mut growing).expect("enough space");
        assert_eq!(flushed.samples, 14);
        assert!(growing.samples.is_empty());
        add_samples(&mut growing, round);
        add_samples(&mut whole, round);
        growing.ledger.kept += 14;
        whole.ledger.kept += 14;
    }
    writer.finish(&mut growing).expect("enough space");
    assert_same(&case.load(Some(1)).expect("a capture").profile, &whole);
}

#[test]
fn a_capture_that_was_not_finished_is_readable_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a new case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.flush(&mut profile).expect("enough space");
    drop(writer);

    let case = Case::open_read_only(&path).expect("a case");
    let loaded = case.load(None).expect("a capture");
    assert!(!loaded.profile.capture.complete);
    assert_eq!(loaded.profile.samples.len(), 14);
    assert!(loaded.damage.is_empty(), "{}", loaded.damage);
    assert!(case.rollup(None).expect("a capture").is_none());
}

#[test]
fn a_capture_without_samples_is_still_a_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a new case");
    let mut profile = Profile::default();
    let mut writer = case
        .begin_capture(&Capture::default())
        .expect("an empty capture");
    writer.finish(&mut profile).expect("enough space");
    let summaries = case.captures().expect("a list");
    assert_eq!(summaries.len(), 1);
    assert!(summaries[0].capture.complete);
    assert!(
        case.load(None)
            .expect("a capture")
            .profile
            .samples
            .is_empty()
    );
    let rollup = case.rollup(None).expect("a capture").expect("finished");
    assert!(rollup.totals.is_empty() && rollup.functions.is_empty());
}

#[test]
fn the_newest_capture_is_the_default_and_each_can_be_had_by_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a new case");
    assert!(matches!(case.load(None), Err(StoreError::NoCapture(_))));
    for round in 0..3 {
        let mut profile = Profile::default();
        add_samples(&mut profile, round);
        let mut writer = case.begin_capture(&profile.capture).expect("a capture");
        assert_eq!(writer.number(), round + 1);
        writer.finish(&mut profile).expect("enough space");
    }
    let tid = |number| {
        let loaded = case.load(number).expect("a capture");
        let tid = loaded
            .profile
            .threads
            .iter()
            .next()
            .expect("a thread")
            .1
            .tid;
        (loaded.profile.capture.number, tid)
    };
    assert_eq!(tid(None), (3, 4244));
    assert_eq!(tid(Some(1)), (1, 4242));
    assert!(matches!(
        case.load(Some(9)),
        Err(StoreError::NoSuchCapture { number: 9, .. })
    ));
}

#[test]
fn the_roll_up_counts_every_measure_apart_and_recursion_once() {
    use throughline_profile::{Frame, FrameKind, OffCpu, Sample, SampleKind, SwitchReason, Thread};
    use throughline_units::Nanos;

    let mut profile = Profile::default();
    let mut frame = |kind, name: &str| {
        let name = profile.strings.intern(name);
        profile.frames.intern(Frame::new(kind, name))
    };
    let main = frame(FrameKind::Native, "main");
    let lua = frame(FrameKind::Lua, "handler");
    let memcpy = frame(FrameKind::Native, "memcpy");
    let comm = profile.strings.intern("nginx");
    let thread = profile.threads.intern(Thread {
        pid: 1,
        tid: 1,
        comm,
        start_ns: None,
    });
    // main > handler > handler > memcpy, and main alone.
    let deep = profile.stacks.push_all([main, lua, lua, memcpy]);
    let shallow = profile.stacks.push_all([main]);
    let with = |stack, kind| Sample {
        lua: LuaContext::With,
        kind,
        ..Sample::on_cpu(Nanos(0), thread, stack)
    };
    let off = |ns, reason, idle| {
        SampleKind::OffCpu(OffCpu {
            duration: Nanos(ns),
            runnable: None,
            reason,
            waker: None,
            idle,
        })
    };
    profile.samples.push(with(deep, SampleKind::OnCpu));
    profile.samples.push(with(deep, SampleKind::OnCpu));
    profile
        .samples
        .push(Sample::on_cpu(Nanos(0), thread, shallow));
    profile.samples.push(Sample::on_cpu(Nanos(0), thread, None));
    profile
        .samples
        .push(with(deep, off(500, SwitchReason::Voluntary, false)));
    profile
        .samples
        .push(with(deep, off(40, SwitchReason::Voluntary, true)));
    profile
        .samples
        .push(with(deep, off(3, SwitchReason::Preempted, false)));

    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a new case");
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.flush(&mut profile).expect("enough space");
    writer.finish(&mut profile).expect("enough space");
    let rollup = case.rollup(None).expect("a capture").expect("finished");

    let costs = |measure, name: &str| {
        let row = rollup
            .functions
            .iter()
            .find(|row| row.measure == measure && row.name == name);
        row.map(|row| (row.self_weight, row.lua_self_weight, row.inclusive_weight))
    };
    assert_eq!(costs(Measure::OnCpu, "main"), Some((1, 0, 3)));
    assert_eq!(costs(Measure::OnCpu, "handler"), Some((0, 2, 2)));
    assert_eq!(costs(Measure::OnCpu, "memcpy"), Some((2, 0, 2)));
    assert_eq!(costs(Measure::Blocked, "handler"), Some((0, 500, 500)));
    assert_eq!(costs(Measure::Idle, "main"), Some((0, 0, 40)));
    assert_eq!(costs(Measure::Preempted, "memcpy"), Some((3, 0, 3)));
    let totals: Vec<_> = rollup
        .totals
        .iter()
        .map(|t| (t.measure, t.lua, t.samples, t.weight))
        .collect();
    assert_eq!(
        totals,
        [
            (Measure::OnCpu, LuaContext::With, 2, 2),
            (Measure::OnCpu, LuaContext::NoVm, 2, 2),
            (Measure::Blocked, LuaContext::With, 1, 500),
            (Measure::Idle, LuaContext::With, 1, 40),
            (Measure::Preempted, LuaContext::With, 1, 3),
        ]
    );
}
