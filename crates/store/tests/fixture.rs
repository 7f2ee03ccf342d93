//! Files of every format that there has been stay readable. Fixtures are never written anew: a new
//! format adds a file.

mod support;

use std::path::{Path, PathBuf};

use support::{as_format_1, assert_same, full_profile};
use throughline_profile::{
    CaptureKind, Category, FrameKind, LuaContext, Measure, Profile, RequestCount, SampleKind,
};
use throughline_store::Case;

/// Set, the generator below writes a fixture of the present format there.
const WRITE_TO: &str = "THROUGHLINE_WRITE_FIXTURE";

/// How the fixtures came about: one finished capture, one that was cut off, one without samples.
#[test]
fn generator_of_fixtures() {
    let Some(path) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let case = Case::create_or_open(Path::new(&path)).expect("a new case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("an end");
    drop(writer);
    let mut cut_off = full_profile();
    let mut writer = case.begin_capture(&cut_off.capture).expect("a capture");
    writer.flush(&mut cut_off).expect("a flush");
    drop(writer);
    let mut empty = Profile::default();
    let mut writer = case.begin_capture(&empty.capture).expect("a capture");
    writer.finish(&mut empty).expect("an end");
}

/// A copy, so that nothing is left beside the original.
fn fixture(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    let original = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    std::fs::copy(original, &path).expect("the fixture");
    (dir, path)
}

/// Reads a fixture as the generator wrote it: its first capture must be `expected`.
fn assert_readable(name: &str, expected: &Profile) {
    let (_dir, path) = fixture(name);
    let case = Case::open_read_only(&path).expect("a case");
    let states: Vec<_> = case
        .captures()
        .expect("a list")
        .into_iter()
        .map(|summary| {
            assert!(summary.damage.is_empty(), "{}", summary.damage);
            (
                summary.capture.number,
                summary.capture.complete,
                summary.ledger.kept,
            )
        })
        .collect();
    assert_eq!(states, [(1, true, 14), (2, false, 14), (3, true, 0)]);

    let loaded = case.load(Some(1)).expect("a capture");
    assert!(loaded.damage.is_empty(), "{}", loaded.damage);
    assert_same(&loaded.profile, expected);
    assert!(
        case.load(Some(3))
            .expect("a capture")
            .profile
            .samples
            .is_empty()
    );
    assert!(case.rollup(Some(2)).expect("a capture").is_none());
}

#[test]
fn format_1_stays_readable() {
    assert_readable("format-1.tl", &as_format_1(full_profile()));
}

#[test]
fn format_2_stays_readable() {
    assert_readable("format-2.tl", &full_profile());
}

/// Written down by hand, in case the generator and the reader err together.
#[test]
fn format_2_means_what_it_meant() {
    let (_dir, path) = fixture("format-2.tl");
    let case = Case::open_read_only(&path).expect("a case");
    let profile = case.load(Some(1)).expect("a capture").profile;
    let RequestCount::Counted { count, source } = &profile.capture.requests else {
        panic!("the requests were counted");
    };
    assert_eq!(
        (*count, source.as_str()),
        (301_200, "uprobe:ngx_http_free_request")
    );
    let categories: Vec<_> = profile
        .samples
        .iter()
        .filter(|sample| sample.kind == SampleKind::OnCpu)
        .map(|sample| sample.category.map(|known| known.category))
        .collect();
    assert_eq!(
        categories,
        [
            Some(Category::Interpreter),
            Some(Category::Allocator),
            Some(Category::Ffi),
            Some(Category::Module),
            Some(Category::KernelNetwork),
            None,
            Some(Category::KernelOther)
        ]
    );
    let second = profile.samples.iter().nth(2).and_then(|s| s.category);
    let may_be = second.expect("a category").may_be;
    assert!(may_be.contains(Category::Interpreter) && may_be.contains(Category::KernelOther));
    assert!(!may_be.contains(Category::Jit));
    let empty = case.load(Some(3)).expect("a capture").profile;
    let RequestCount::NotCounted { reason } = &empty.capture.requests else {
        panic!("the empty capture counted nothing");
    };
    assert_eq!(reason, "requests were not counted when this was recorded");
}

/// Written down by hand, in case the generator and the reader err together.
#[test]
fn format_1_means_what_it_meant() {
    let (_dir, path) = fixture("format-1.tl");
    let case = Case::open_read_only(&path).expect("a case");
    let profile = case.load(Some(1)).expect("a capture").profile;
    let capture = &profile.capture;
    assert_eq!(capture.kinds, [CaptureKind::OnCpu, CaptureKind::OffCpu]);
    assert_eq!((capture.rate_hz, capture.duration.0), (99, 30_000_000_000));
    assert_eq!(capture.host, "gateway-7");
    assert_eq!(capture.max_block_ns, u64::MAX);
    assert_eq!(
        capture.targets[0].lua_vms[1].global_state,
        0xffff_8000_0000_0010
    );
    assert_eq!(capture.targets[1].pid, u32::MAX);
    assert_eq!((profile.ledger.taken, profile.ledger.kept), (17, 14));
    assert_eq!(profile.ledger.lost["thread_gone"], 2);

    let kinds: Vec<_> = profile.frames.iter().map(|(_, frame)| frame.kind).collect();
    assert_eq!(
        kinds,
        [
            FrameKind::Native,
            FrameKind::Kernel,
            FrameKind::Lua,
            FrameKind::LuaBuiltin,
            FrameKind::Interpreter,
            FrameKind::Jit,
            FrameKind::OtherJit,
            FrameKind::Marker
        ]
    );
    let samples: Vec<_> = profile.samples.iter().collect();
    assert_eq!(samples[0].lua, LuaContext::With);
    assert_eq!(samples[2].lua, LuaContext::NoVm);
    assert_eq!(samples[4].lua, LuaContext::NativeOnly);
    assert_eq!(
        (samples[6].lua, samples[6].stack),
        (LuaContext::VmEntry, None)
    );
    assert_eq!(samples[8].lua, LuaContext::VmUnreadable);
    assert_eq!(samples[10].lua, LuaContext::WalkFailed);
    assert_eq!(samples[12].lua, LuaContext::StackCut);
    let SampleKind::OffCpu(off) = samples[3].kind else {
        panic!("the fourth sample is a wait");
    };
    assert_eq!((off.duration.0, off.idle), (1_001, false));
    assert_eq!(
        profile.threads.get(off.waker.expect("a waker")).pid,
        u32::MAX
    );

    let rollup = case.rollup(Some(1)).expect("a capture").expect("finished");
    let weight = |measure| -> u64 {
        let totals = rollup
            .totals
            .iter()
            .filter(|total| total.measure == measure);
        totals.map(|total| total.weight).sum()
    };
    assert_eq!(weight(Measure::OnCpu), 7);
    // Durations 1000 to 1006: the odd ones were preempted, 0 and 4 were idle.
    assert_eq!(weight(Measure::Preempted), 1_001 + 1_003 + 1_005);
    assert_eq!(weight(Measure::Idle), 1_000 + 1_004);
    assert_eq!(weight(Measure::Blocked), 1_002 + 1_006);
}

#[test]
fn format_1_is_raised_when_it_takes_further_captures_and_keeps_what_it_holds() {
    let (_dir, path) = fixture("format-1.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    assert_eq!(writer.number(), 4);
    writer.finish(&mut profile).expect("enough space");
    let new = case.load(None).expect("a capture");
    assert!(new.damage.is_empty(), "{}", new.damage);
    assert_eq!(new.profile.samples.len(), 14);
    let known = |profile: &Profile| {
        profile
            .samples
            .iter()
            .filter(|s| s.category.is_some())
            .count()
    };
    assert_eq!(known(&new.profile), 6);
    let old = case.load(Some(1)).expect("a capture");
    assert!(old.damage.is_empty(), "{}", old.damage);
    assert_same(&old.profile, &as_format_1(full_profile()));
}
