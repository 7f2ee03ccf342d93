//! Marks of a case file, and what every connection to one is set to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::error::{BUSY_TIMEOUT_MS, StoreError};

/// `PRAGMA application_id` of a case file: the bytes `thrl`.
pub const APPLICATION_ID: i32 = 0x7468_726c;

/// `PRAGMA user_version` that this crate writes, and the newest that it reads.
pub const VERSION: i32 = 2;

/// What each format adds to the one before, in order: format n is made by the first n of these. A file of an older format is
/// raised by the rest.
const FORMATS: [&str; VERSION as usize] =
    [include_str!("format_1.sql"), include_str!("format_2.sql")];

/// The tables of format 1; each must be an ordinary table of the file.
const TABLES_OF_FORMAT_1: [&str; 14] = [
    "capture",
    "capture_warning",
    "ledger",
    "target",
    "lua_vm",
    "string",
    "module",
    "frame",
    "stack",
    "thread",
    "on_cpu_sample",
    "off_cpu_sample",
    "rollup_total",
    "rollup_function",
];

/// The tables that format 2 adds.
const TABLES_OF_FORMAT_2: [&str; 0] = [];

/// The tables that a file of this format must have.
fn tables(format: i32) -> impl Iterator<Item = &'static str> {
    let of_format_2 = TABLES_OF_FORMAT_2.iter().filter(move |_| format >= 2);
    TABLES_OF_FORMAT_1.iter().chain(of_format_2).copied()
}

/// Longest text or row that is read, in bytes: names are short, and a hostile file may claim gigabytes.
const LONGEST_VALUE: i32 = 16 << 20;

/// Statements that are kept prepared; a flush uses about twenty.
const PREPARED_STATEMENTS: usize = 40;

/// What a file says that it is.
pub(crate) enum Identity {
    /// No tables, no marks: free to become a case.
    Empty,
    /// A case of a format that is known here.
    Case {
        /// Which one.
        format: i32,
    },
}

/// Settings that make a foreign file harmless; before anything else is asked of it.
pub(crate) fn harden(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    conn.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    conn.pragma_update(None, "cell_size_check", true)
}

/// Bound on the work of reading a file, in steps of SQLite's virtual machine.
///
/// The pages of a crafted file can refer to each other so that a few kilobytes seem to hold more rows
/// than anyone can read. A sound row costs about 15 steps and takes at least 10 bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkLimit {
    left: Arc<AtomicI64>,
}

impl WorkLimit {
    const STEPS_AT_LEAST: u64 = 10_000_000;
    const STEPS_PER_BYTE: u64 = 16;
    /// Steps between two looks at what is left.
    const STEPS_PER_LOOK: i32 = 1_000;

    /// Puts the connection under a limit that [`WorkLimit::renew`] must set.
    pub(crate) fn install(conn: &mut Connection) -> rusqlite::Result<Self> {
        let limit = Self::default();
        let left = limit.left.clone();
        let used_up = move || left.fetch_sub(1, Ordering::Relaxed) <= 0;
        conn.progress_handler(Self::STEPS_PER_LOOK, Some(used_up))?;
        limit.renew(0);
        Ok(limit)
    }

    /// Allows what a sound file of this size needs.
    pub(crate) fn renew(&self, bytes: u64) {
        let steps = Self::STEPS_AT_LEAST.saturating_add(bytes.saturating_mul(Self::STEPS_PER_BYTE));
        let looks = steps / u64::from(Self::STEPS_PER_LOOK.unsigned_abs());
        let looks = i64::try_from(looks).unwrap_or(i64::MAX);
        self.left.store(looks, Ordering::Relaxed);
    }
}

/// Whose file this is; an error when it is not ours or newer than us. Changes nothing.
pub(crate) fn identify(conn: &Connection, path: &Path) -> Result<Identity, StoreError> {
    let sqlite = |source| StoreError::from_sqlite(path, "read", source);
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application_id = number("application_id").map_err(sqlite)?;
    let version = number("user_version").map_err(sqlite)?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    match (application_id, version) {
        (0, 0) if tables == 0 => Ok(Identity::Empty),
        (APPLICATION_ID, format @ 1..=VERSION) => {
            check_tables(conn, path, format).map(|()| Identity::Case { format })
        }
        (APPLICATION_ID, found) if found > VERSION => Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
            known: VERSION,
        }),
        (APPLICATION_ID, found) => Err(StoreError::Damaged {
            path: path.to_owned(),
            what: format!("its header claims format {found}, which never was"),
        }),
        (application_id, _) => Err(StoreError::OtherApplication {
            path: path.to_owned(),
            application_id,
        }),
    }
}

/// A view or virtual table under one of our names would run foreign SQL: only plain tables will do.
fn check_tables(conn: &Connection, path: &Path, format: i32) -> Result<(), StoreError> {
    let sqlite = |source| StoreError::from_sqlite(path, "read", source);
    let mut query = conn
        .prepare("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .map_err(sqlite)?;
    for table in tables(format) {
        let plain = query
            .query_map([table], |row| row.get::<_, String>(0))
            .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
            .map_err(sqlite)?
            .iter()
            .any(|sql| sql.starts_with("CREATE TABLE"));
        if !plain {
            return Err(StoreError::Damaged {
                path: path.to_owned(),
                what: format!("the table `{table}` is missing"),
            });
        }
    }
    Ok(())
}

/// The format of a case whose identity is known; read with every answer, because a recorder may raise it meanwhile.
pub(crate) fn format(conn: &Connection) -> rusqlite::Result<i32> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Makes an empty file a case of the present format, or raises an older one to it, in one transaction. Does nothing when
/// another process was faster.
pub(crate) fn create_or_raise(conn: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |source| StoreError::from_sqlite(path, "create", source);
    let transaction = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(sqlite)?;
    let present = match identify(&transaction, path)? {
        Identity::Empty => 0,
        Identity::Case { format } => usize::try_from(format).unwrap_or(0),
    };
    for change in FORMATS.iter().skip(present) {
        transaction.execute_batch(change).map_err(sqlite)?;
    }
    if present < FORMATS.len() {
        transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .and_then(|()| transaction.pragma_update(None, "user_version", VERSION))
            .map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)
}

/// Settings of a connection that writes.
///
/// WAL with `synchronous = NORMAL`: a commit is handed to the kernel and survives the death of the
/// process; the disk is waited for only at checkpoints, so power loss may cost the last commits but
/// never the file.
pub(crate) fn prepare_to_write(conn: &Connection) -> rusqlite::Result<()> {
    retry_while_busy(|| conn.pragma_update(None, "journal_mode", "WAL"))?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    conn.pragma_update(None, "foreign_keys", true)
}

/// Makes the file whole again when this is the last connection: the log is folded in and removed, so that the
/// file can be mailed, or read where nothing can be written. With other connections about, theirs is the job.
pub(crate) fn settle(conn: &Connection) {
    // A failure leaves a file with a log beside it, which every reader understands.
    let _ = conn
        .busy_timeout(Duration::ZERO)
        .and_then(|()| conn.pragma_update(None, "journal_mode", "DELETE"));
}

/// Waits for others: SQLite does not use its busy handler for the step to WAL.
fn retry_while_busy<T>(mut step: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    const PAUSE_MS: u64 = 20;
    let mut waited = 0;
    loop {
        match step() {
            Err(error)
                if waited < BUSY_TIMEOUT_MS
                    && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) =>
            {
                std::thread::sleep(Duration::from_millis(PAUSE_MS));
                waited += PAUSE_MS;
            }
            done => return done,
        }
    }
}
