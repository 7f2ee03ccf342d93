//! `FORMATS.md` says what the file holds.

use std::path::Path;

use rusqlite::Connection;
use throughline_store::{APPLICATION_ID, Case, VERSION};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../FORMATS.md");
    std::fs::read_to_string(path).expect("FORMATS.md at the root of the repository")
}

fn new_case() -> (tempfile::TempDir, Connection) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    drop(Case::create_or_open(&path).expect("a new case"));
    let conn = Connection::open(path).expect("an SQLite file");
    (dir, conn)
}

#[test]
fn every_table_and_column_is_described() {
    let (_dir, conn) = new_case();
    let page = page();
    let mut query = conn
        .prepare(
            "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c
             WHERE m.type = 'table'",
        )
        .expect("SQL");
    let columns: Vec<(String, String)> = query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .expect("columns");
    assert!(columns.len() > 80, "{} columns", columns.len());
    for (table, column) in columns {
        let section = page
            .split("\n### ")
            .find(|section| {
                let heading = section.lines().next().unwrap_or_default();
                heading.split(" and ").any(|name| name == table)
            })
            .unwrap_or_else(|| panic!("no section on the table {table}"));
        assert!(
            section.contains(&format!("`{column}`")),
            "{table}.{column} is not described"
        );
    }
}

#[test]
fn the_marks_of_the_file_are_as_described() {
    let (dir, conn) = new_case();
    drop(conn);
    let bytes = std::fs::read(dir.path().join("case.tl")).expect("the file");
    assert_eq!(&bytes[..16], b"SQLite format 3\0");
    assert_eq!(bytes[60..64], VERSION.to_be_bytes());
    assert_eq!(bytes[68..72], APPLICATION_ID.to_be_bytes());
    assert_eq!(&bytes[68..72], b"thrl");
    let page = page();
    assert!(page.contains(&format!("`PRAGMA user_version` | {VERSION},")));
    assert!(page.contains(&format!("{APPLICATION_ID:#x}")));
}

#[test]
fn the_questions_on_the_page_have_answers() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/format-1.tl");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("case.tl");
    std::fs::copy(original, &path).expect("the fixture");
    let conn = Connection::open(path).expect("an SQLite file");
    let page = page();
    let answers: Vec<usize> = page
        .split("```sql\n")
        .skip(1)
        .map(|rest| {
            let sql = rest.split("```").next().unwrap_or_default();
            let mut query = conn.prepare(sql).expect(sql);
            let rows = query.query_map([], |_| Ok(())).expect(sql);
            rows.map(|row| row.expect(sql)).count()
        })
        .collect();
    // One innermost frame; a stack of eight; two functions of kinds 0 and 1; no ledger that fails.
    assert_eq!(answers, [1, 8, 2, 0]);
}
