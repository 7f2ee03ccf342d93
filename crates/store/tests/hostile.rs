//! Case files that were not written by this tool, or not left as it wrote them.

mod support;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rusqlite::Connection;
use support::{assert_same, full_profile};
use throughline_store::{APPLICATION_ID, Case, Loaded, StoreError, VERSION};

/// A folder with one sound case of 14 samples in it.
fn sound_case() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let case = Case::create_or_open(&path).expect("a new case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("enough space");
    (dir, path)
}

/// Changes a case in ways that its own rules forbid.
fn edit(path: &Path, sql: &str) {
    let conn = Connection::open(path).expect("an SQLite file");
    conn.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
        .and_then(|()| conn.execute_batch(sql))
        .expect("SQL that SQLite accepts");
}

fn load(path: &Path) -> Loaded {
    Case::open_read_only(path)
        .and_then(|case| case.load(None))
        .expect("a capture, however damaged")
}

/// The findings as `table: reason`.
fn findings(loaded: &Loaded) -> Vec<String> {
    let found = loaded.damage.iter();
    found
        .map(|(table, reason, _)| format!("{table}: {reason}"))
        .collect()
}

#[track_caller]
fn assert_found(sql: &str, finding: &str) -> Loaded {
    let (_dir, path) = sound_case();
    edit(&path, sql);
    let loaded = load(&path);
    let found = findings(&loaded);
    assert!(found.iter().any(|text| text == finding), "{found:?}");
    loaded
}

#[test]
fn a_stack_that_is_its_own_ancestor_is_left_out() {
    let loaded = assert_found(
        "UPDATE stack SET parent = 5 WHERE stack = 2",
        "stack: its parent is not an earlier stack",
    );
    // The samples stand on stack 7, which stands on 2; nothing of them is left, and the ledger says so.
    assert_eq!(loaded.profile.stacks.len(), 2);
    let lost = loaded.profile.ledger.lost.get(Loaded::DAMAGED);
    assert_eq!(lost, Some(&12), "two of fourteen samples have no stack");
    assert_eq!(loaded.profile.samples.len(), 2);
    assert!(loaded.profile.ledger.taken == 17 && loaded.profile.ledger.balances());
    assert!(loaded.profile.capture.ledger_on_cpu.balances());
    assert_eq!(loaded.profile.capture.ledger_on_cpu.kept, 1);
}

#[test]
fn a_stack_on_itself_is_left_out() {
    assert_found(
        "UPDATE stack SET parent = stack",
        "stack: its parent is not an earlier stack",
    );
}

#[test]
fn references_to_nothing_are_counted_by_table() {
    assert_found(
        "DELETE FROM string WHERE string = 3",
        "frame: refers to a missing string",
    );
    assert_found("DELETE FROM module", "frame: refers to a missing module");
    assert_found(
        "DELETE FROM frame WHERE frame = 4",
        "stack: refers to a missing frame",
    );
    assert_found(
        "DELETE FROM stack WHERE stack = 7",
        "on_cpu_sample: refers to a missing stack",
    );
    assert_found(
        "DELETE FROM thread",
        "off_cpu_sample: refers to a missing thread",
    );
    assert_found(
        "UPDATE off_cpu_sample SET waker = 99",
        "off_cpu_sample: refers to a missing waker",
    );
    assert_found(
        "DELETE FROM target WHERE target = 0",
        "lua_vm: its target is missing",
    );
}

#[test]
fn huge_negative_and_unknown_numbers_are_counted() {
    let range = "a value has the wrong type or is out of range";
    assert_found("UPDATE frame SET kind = 99", "frame: unknown kind of frame");
    assert_found("UPDATE frame SET line = -1", &format!("frame: {range}"));
    assert_found(
        "UPDATE thread SET pid = 1 << 40",
        &format!("thread: {range}"),
    );
    assert_found(
        "UPDATE on_cpu_sample SET flags = 1 << 33",
        &format!("on_cpu_sample: {range}"),
    );
    assert_found(
        "UPDATE on_cpu_sample SET lua_context = 7",
        "on_cpu_sample: unknown Lua context",
    );
    assert_found(
        "UPDATE off_cpu_sample SET reason = 2",
        "off_cpu_sample: unknown reason",
    );
    assert_found(
        "UPDATE off_cpu_sample SET duration_ns = -5",
        "off_cpu_sample: a count is negative",
    );
    assert_found(
        "UPDATE ledger SET scope = 4 WHERE scope = 0",
        "ledger: unknown scope",
    );
    assert_found(
        "UPDATE ledger SET entry = 9 WHERE entry = 0",
        "ledger: unknown entry",
    );
    assert_found(
        "UPDATE capture SET duration_ns = -1",
        "capture: a count is negative",
    );
    // A number is only a name: it need not be dense or small.
    let (_dir, path) = sound_case();
    edit(
        &path,
        "UPDATE stack SET stack = 9223372036854775807 WHERE stack = 7;
         UPDATE on_cpu_sample SET stack = 9223372036854775807 WHERE stack = 7;
         UPDATE off_cpu_sample SET stack = 9223372036854775807 WHERE stack = 7;",
    );
    assert_same(&load(&path).profile, &full_profile());
}

#[test]
fn values_of_another_type_are_counted() {
    let untyped = |table: &str, column: &str, value: &str| {
        format!(
            "CREATE TABLE copy AS SELECT * FROM {table};
             DROP TABLE {table};
             ALTER TABLE copy RENAME TO {table};
             UPDATE {table} SET {column} = {value};"
        )
    };
    let range = "a value has the wrong type or is out of range";
    for (table, column, value) in [
        ("string", "text", "x'ff00'"),
        ("string", "text", "CAST(x'80ff' AS TEXT)"),
        ("frame", "name", "'main'"),
        ("stack", "frame", "NULL"),
        ("thread", "tid", "1.5"),
        ("on_cpu_sample", "time_ns", "'soon'"),
        ("off_cpu_sample", "idle", "x'01'"),
        ("capture", "host", "x'07'"),
        ("ledger", "samples", "'many'"),
        ("target", "comm", "NULL"),
        ("capture_warning", "text", "NULL"),
    ] {
        assert_found(&untyped(table, column, value), &format!("{table}: {range}"));
    }
}

#[test]
fn two_rows_of_one_text_are_one_string() {
    let (_dir, path) = sound_case();
    edit(&path, "UPDATE string SET text = 'same'");
    let loaded = load(&path);
    assert_eq!(loaded.profile.strings.len(), 1);
    assert_eq!(loaded.profile.samples.len(), 14);
}

#[test]
fn a_text_of_many_megabytes_is_not_read() {
    let (_dir, path) = sound_case();
    edit(
        &path,
        "UPDATE string SET text = printf('%.*c', 40000000, 'x') WHERE string = 2",
    );
    let found = findings(&load(&path));
    assert!(
        found
            .iter()
            .any(|text| text.starts_with("string: not readable")),
        "{found:?}"
    );
}

#[test]
fn a_view_under_the_name_of_a_table_is_not_run() {
    let (_dir, path) = sound_case();
    edit(
        &path,
        "DROP TABLE on_cpu_sample;
         CREATE VIEW on_cpu_sample AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT 1 AS capture, i AS sample, 0 AS time_ns, 0 AS thread, 0 AS stack, 0 AS lua_context,
                0 AS vm_state, 0 AS flags FROM n;",
    );
    let error = Case::open_read_only(&path).expect_err("a view is no table");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("on_cpu_sample"), "{error}");
}

#[test]
fn a_trigger_in_the_file_is_not_run() {
    let (_dir, path) = sound_case();
    edit(
        &path,
        "CREATE TRIGGER evil AFTER INSERT ON capture BEGIN DELETE FROM string; END;",
    );
    let case = Case::create_or_open(&path).expect("a case");
    let mut profile = full_profile();
    let mut writer = case.begin_capture(&profile.capture).expect("a capture");
    writer.finish(&mut profile).expect("enough space");
    assert!(findings(&case.load(Some(1)).expect("a capture")).is_empty());
}

#[test]
fn files_of_others_are_refused_and_left_as_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    let refused = |sql: &str| {
        let _ = std::fs::remove_file(&path);
        Connection::open(&path)
            .and_then(|conn| conn.execute_batch(sql))
            .expect("an SQLite file");
        let before = std::fs::read(&path).expect("the file");
        let errors = [
            Case::create_or_open(&path).expect_err("not ours"),
            Case::open_read_only(&path).expect_err("not ours"),
        ];
        assert_eq!(std::fs::read(&path).expect("the file"), before);
        errors
    };
    for error in refused("CREATE TABLE cookies (name); PRAGMA application_id = 77;") {
        assert!(
            matches!(
                error,
                StoreError::OtherApplication {
                    application_id: 77,
                    ..
                }
            ),
            "{error}"
        );
    }
    for error in refused("CREATE TABLE cookies (name);") {
        assert!(
            matches!(error, StoreError::OtherApplication { .. }),
            "{error}"
        );
    }
    let newer = format!(
        "CREATE TABLE capture (x); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};",
        VERSION + 1
    );
    for error in refused(&newer) {
        assert!(
            matches!(
                error,
                StoreError::TooNew {
                    found: 3,
                    known: 2,
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            error.to_string().contains("use a newer throughline"),
            "{error}"
        );
    }
    for error in refused(&format!(
        "CREATE TABLE x (y); PRAGMA application_id = {APPLICATION_ID};"
    )) {
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("coreutils").success());
    for result in [Case::create_or_open(&path), Case::open_read_only(&path)] {
        let error = result.expect_err("no case").to_string();
        assert!(error.contains("no regular file"), "{error}");
    }
}

#[test]
fn what_is_no_sqlite_file_is_named_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("perf.data");
    std::fs::write(&path, b"PERFILE2 and more").expect("a file");
    for result in [Case::create_or_open(&path), Case::open_read_only(&path)] {
        let error = result.expect_err("not a case");
        assert!(matches!(error, StoreError::NotSqlite(_)), "{error}");
        assert!(error.to_string().contains("no SQLite header"), "{error}");
    }
    let missing = dir.path().join("missing.tl");
    assert!(matches!(
        Case::open_read_only(&missing),
        Err(StoreError::NotFound(_))
    ));
    assert!(!missing.exists());
    assert!(matches!(
        Case::create_or_open(dir.path()),
        Err(StoreError::Unreadable { .. })
    ));
    let nowhere = dir.path().join("no/such/folder.tl");
    assert!(Case::create_or_open(&nowhere).is_err());
    let empty = dir.path().join("empty.tl");
    std::fs::write(&empty, b"").expect("a file");
    assert!(matches!(
        Case::open_read_only(&empty),
        Err(StoreError::NoCapture(_))
    ));
    assert!(Case::create_or_open(&empty).is_ok());
}

/// A page refers to the next over and over, and so on: 70 bytes a level multiply the rows.
#[test]
fn pages_that_seem_to_hold_endless_rows_are_given_up_soon() {
    let (_dir, path) = sound_case();
    // Long texts, so that the table needs many pages and its root is an interior page.
    edit(
        &path,
        "WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO string SELECT 1, i, printf('%.*c', 100, 'x') FROM n;",
    );
    let page_of = |conn: &Connection, sql: &str| -> u32 {
        conn.query_row(sql, [], |row| row.get(0)).expect("a page")
    };
    let conn = Connection::open(&path).expect("an SQLite file");
    let root = page_of(
        &conn,
        "SELECT rootpage FROM sqlite_schema WHERE name = 'string'",
    );
    let size = page_of(&conn, "PRAGMA page_size") as usize;
    drop(conn);
    let mut bytes = std::fs::read(&path).expect("the file");
    let start = |page: u32| (page as usize - 1) * size;
    let number = |bytes: &[u8], at: usize| {
        u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
    };
    let interior = bytes[start(root)..start(root) + size].to_vec();
    assert_eq!(interior[0], 2, "an interior page of an index");
    let cells = u16::from_be_bytes([interior[3], interior[4]]) as usize;
    let cell = |i: usize| u16::from_be_bytes([interior[12 + 2 * i], interior[13 + 2 * i]]) as usize;
    let children: Vec<u32> = (0..cells).map(|i| number(&interior, cell(i))).collect();
    assert!(children.len() > 20, "{} children", children.len());
    // The root and 15 of its former children become a chain of copies of the root.
    let mut chain = vec![root];
    chain.extend(&children[..15]);
    for (i, &page) in chain.iter().enumerate() {
        let next = chain.get(i + 1).copied().unwrap_or(children[16]);
        let mut copy = interior.clone();
        copy[8..12].copy_from_slice(&next.to_be_bytes());
        for i in 0..cells {
            copy[cell(i)..cell(i) + 4].copy_from_slice(&next.to_be_bytes());
        }
        bytes[start(page)..start(page) + size].copy_from_slice(&copy);
    }
    std::fs::write(&path, bytes).expect("a file");

    let begun = std::time::Instant::now();
    let found = findings(&load(&path));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    assert!(
        found.contains(&"string: a key is not larger than the one before".to_owned()),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|text| text.starts_with("string: not readable from here on")),
        "{found:?}"
    );
}

/// Asks everything of a file; any answer will do, a panic will not.
fn ask_everything(path: &Path) {
    let Ok(case) = Case::open_read_only(path) else {
        return;
    };
    let _ = case.captures();
    let _ = case.rollup(None);
    if let Ok(loaded) = case.load(None) {
        let profile = &loaded.profile;
        for (stack, _, frame) in profile.stacks.iter() {
            assert!(profile.stacks.depth(stack) <= profile.stacks.len());
            let _ = profile.strings.get(profile.frames.get(frame).name);
        }
        for sample in profile.samples.iter() {
            let _ = profile.strings.get(profile.threads.get(sample.thread).comm);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_change_of_bytes_makes_reading_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = include_bytes!("../testdata/format-1.tl").to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("case.tl");
        std::fs::write(&path, bytes).expect("a file");
        ask_everything(&path);
    }
}
