//! What is left of a recording that did not end well: killed, out of space, beside another one.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::mount::SmallDisk;
use support::{add_samples, full_profile};
use throughline_profile::Profile;
use throughline_store::{Case, StoreError};

/// Names the case file to a child process that is to record into it.
const RECORD_INTO: &str = "THROUGHLINE_TEST_RECORD_INTO";
/// How many flushes the child makes before it finishes.
const FLUSHES: &str = "THROUGHLINE_TEST_FLUSHES";

/// Samples of one flush in these tests.
const PER_FLUSH: u64 = 14;

/// Not a test of its own: the recorder that the tests below start and kill.
#[test]
fn child_that_records() {
    let Some(path) = std::env::var_os(RECORD_INTO) else {
        return;
    };
    let flushes: u32 = std::env::var(FLUSHES)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(u32::MAX);
    let case = Case::create_or_open(Path::new(&path)).expect("a case");
    let mut profile = Profile::default();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    for round in 0..flushes {
        add_samples(&mut profile, round);
        profile.ledger.taken += PER_FLUSH;
        profile.ledger.kept += PER_FLUSH;
        writer.flush(&mut profile).expect("a flush");
        eprintln!("flushed {} {}", writer.number(), round + 1);
    }
    writer.finish(&mut profile).expect("an end");
}

fn start_recorder(path: &Path, flushes: u32) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child_that_records", "--nocapture"])
        .env(RECORD_INTO, path)
        .env(FLUSHES, flushes.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child")
}

#[test]
fn a_killed_recorder_leaves_everything_it_had_flushed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let mut child = start_recorder(&path, u32::MAX);
    let mut told = 0;
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    for line in lines.map_while(Result::ok) {
        if let Some(round) = line.strip_prefix("flushed 1 ") {
            told = round.parse().expect("a number");
        }
        if told >= 40 {
            break;
        }
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    assert!(
        told >= 40,
        "the recorder ended by itself after {told} flushes"
    );

    let case = Case::open_read_only(&path).expect("a case");
    let loaded = case.load(None).expect("a capture");
    assert!(loaded.damage.is_empty(), "{}", loaded.damage);
    assert!(!loaded.profile.capture.complete);
    let kept = loaded.profile.samples.len() as u64;
    assert!(kept >= told * PER_FLUSH, "{kept} samples of {told} flushes");
    // Samples and ledger are of one transaction.
    assert_eq!(loaded.profile.ledger.kept, kept);
    drop(case);

    // And the case goes on.
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    assert_eq!(writer.number(), 2);
    writer.finish(&mut profile).expect("enough space");
    let states: Vec<_> = case
        .captures()
        .expect("a list")
        .iter()
        .map(|summary| (summary.capture.number, summary.capture.complete))
        .collect();
    assert_eq!(states, [(1, false), (2, true)]);
}

#[test]
fn two_recordings_into_one_new_case_at_once_are_both_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let flushes = 50;
    let children = [(); 3].map(|()| start_recorder(&path, flushes));
    for child in children {
        let output = child.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let case = Case::open_read_only(&path).expect("a case");
    assert_eq!(case.captures().expect("a list").len(), 3);
    for number in 1..=3 {
        let loaded = case.load(Some(number)).expect("a capture");
        assert!(loaded.damage.is_empty(), "{}", loaded.damage);
        assert!(loaded.profile.capture.complete);
        assert_eq!(
            loaded.profile.samples.len() as u64,
            u64::from(flushes) * PER_FLUSH
        );
    }
}

#[test]
fn a_reader_sees_whole_flushes_while_a_recorder_writes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = Profile::default();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    let reader = Case::open_read_only(&path).expect("a case");
    for round in 1..=5 {
        add_samples(&mut profile, round);
        writer.flush(&mut profile).expect("a flush");
        let loaded = reader.load(None).expect("a capture");
        assert!(loaded.damage.is_empty(), "{}", loaded.damage);
        assert_eq!(
            loaded.profile.samples.len() as u64,
            u64::from(round) * PER_FLUSH
        );
    }
}

#[test]
fn a_finished_case_is_one_file_without_anything_beside_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("enough space");
    drop((writer, case));
    Case::open_read_only(&path)
        .and_then(|case| case.load(None))
        .expect("a capture");
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["case.tl"]);
}

/// A number that no other frame has, so that every flush needs new pages.
fn flush_until_full(case: &Case) -> (u64, StoreError) {
    let mut profile = Profile::default();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    for round in 0..100_000 {
        add_samples(&mut profile, round);
        profile.ledger.kept += PER_FLUSH;
        profile.ledger.taken += PER_FLUSH;
        if let Err(error) = writer.flush(&mut profile) {
            assert_eq!(
                profile.samples.len() as u64,
                PER_FLUSH,
                "a failed flush must leave the samples with their owner"
            );
            return (u64::from(round) * PER_FLUSH, error);
        }
    }
    panic!("the small disk never filled up");
}

#[test]
fn a_full_disk_is_named_and_what_was_written_stays_readable() {
    let disk = match SmallDisk::new(1_024) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: mount of a small tmpfs: {why}");
            return;
        }
    };
    let path = disk.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let (flushed, error) = flush_until_full(&case);
    assert!(matches!(error, StoreError::DiskFull(_)), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    drop(case);
    assert!(flushed > 0);
    let case = Case::open_read_only(&path).expect("a case");
    let loaded = case.load(None).expect("a capture");
    assert!(loaded.damage.is_empty(), "{}", loaded.damage);
    assert_eq!(loaded.profile.samples.len() as u64, flushed);
    assert_eq!(loaded.profile.ledger.kept, flushed);
}

#[test]
fn a_case_on_a_read_only_disk_is_readable_and_not_writable() {
    let disk = match SmallDisk::new(4_096) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: mount of a small tmpfs: {why}");
            return;
        }
    };
    let path = disk.path().join("case ?#%41.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("enough space");
    drop((writer, case));
    if let Err(why) = disk.make_read_only() {
        eprintln!("SKIPPED: read-only remount: {why}");
        return;
    }
    let case = Case::open_read_only(&path).expect("a case");
    assert_eq!(
        case.load(None).expect("a capture").profile.samples.len(),
        14
    );
    let error = Case::create_or_open(&path).expect_err("nothing can be written here");
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
}

#[test]
fn a_file_that_is_removed_or_replaced_under_its_writer_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    std::fs::rename(&path, dir.path().join("elsewhere.tl")).expect("one folder");
    let gone = writer.flush(&mut profile).expect_err("it is not there");
    assert!(matches!(gone, StoreError::NotInPlace(_)), "{gone}");
    std::fs::write(&path, "").expect("space");
    let other = writer.finish(&mut profile).expect_err("it is another one");
    assert!(matches!(other, StoreError::NotInPlace(_)), "{other}");
    assert!(!profile.samples.is_empty(), "the samples are still there");
}

#[test]
fn a_table_that_became_shorter_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.flush(&mut profile).expect("a flush");
    let mut other = Profile::default();
    assert!(matches!(
        writer.flush(&mut other),
        Err(StoreError::NotAContinuation(_))
    ));
    writer.finish(&mut profile).expect("an end");
    assert!(matches!(
        writer.flush(&mut profile),
        Err(StoreError::NotAContinuation(_))
    ));
}
