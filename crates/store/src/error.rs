//! What can go wrong with a case file, and what to do about it.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a case file could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not exist.
    #[error("there is no case file {}: check the path, or make one with `throughline record -o`", .0.display())]
    NotFound(PathBuf),
    /// The operating system does not let the file be read.
    #[error("cannot read {}: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// The file exists and is not an SQLite file at all.
    #[error("{} is not a case file (no SQLite header): check the path; other tools' profiles are not read", .0.display())]
    NotSqlite(PathBuf),
    /// An SQLite file of another program.
    #[error(
        "{} is an SQLite file of another program (application id {application_id:#010x}); it was left as it is, name another file", .path.display()
    )]
    OtherApplication {
        /// The file.
        path: PathBuf,
        /// The id in its header; 0 when the program set none.
        application_id: i32,
    },
    /// A recorder was killed, and its log cannot be replayed where the file lies.
    #[error(
        "the log of an interrupted recording beside {} cannot be read in a read-only folder: copy the file and its \
         `-wal` together to a folder that can be written", .0.display()
    )]
    LogNotReadable(PathBuf),
    /// Written by a newer version of this tool.
    #[error(
        "{} has case format {found}, this throughline reads up to {known}: use a newer throughline; the file was left as it is", .path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// The file is broken in a way that leaves nothing to read.
    #[error(
        "{} is damaged: {what}; `sqlite3 FILE .recover` may save parts of it", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is broken.
        what: String,
    },
    /// The case has no capture of this number.
    #[error("{} has no capture {number}: it holds {held}", .path.display())]
    NoSuchCapture {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        number: u32,
        /// What there is, for people.
        held: String,
    },
    /// The case has no capture yet.
    #[error("{} holds no capture yet: record one with `throughline record -o`", .0.display())]
    NoCapture(PathBuf),
    /// Another process has held the write lock for longer than the writer waits.
    #[error(
        "another recorder is writing {} and has not let go within {waited_ms} ms: try again, or record into another file", .path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The file system is full. What was written before stays readable.
    #[error(
        "no space left to write {}: what was recorded up to now is kept and readable; free space or record to another disk", .0.display()
    )]
    DiskFull(PathBuf),
    /// The file, or its folder, cannot be written.
    #[error("{} cannot be written: it or its folder is read-only for this user", .0.display())]
    ReadOnly(PathBuf),
    /// The path does not lead to the file any more that is being written.
    #[error(
        "{} was removed or replaced while it was recorded into, and the recording went with it: record again", .0.display()
    )]
    NotInPlace(PathBuf),
    /// The caller broke the writer's rules.
    #[error("the profile does not continue what was flushed before: {0}")]
    NotAContinuation(&'static str),
    /// Anything else that SQLite reports.
    #[error("cannot {action} {}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// SQLite's own words.
        source: rusqlite::Error,
    },
}

/// How long a writer waits for another one before it gives up, in ms.
///
/// A flush holds the lock for some milliseconds; five seconds means that something is wrong.
pub(crate) const BUSY_TIMEOUT_MS: u64 = 5_000;

impl StoreError {
    /// The error for what SQLite reports while `action` is done to `path`.
    pub(crate) fn from_sqlite(path: &Path, action: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy {
                path,
                waited_ms: BUSY_TIMEOUT_MS,
            },
            Some(ErrorCode::ReadOnly) => Self::ReadOnly(path),
            Some(ErrorCode::NotADatabase) => Self::NotSqlite(path),
            // Only the limit on the work of reading interrupts.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::OperationInterrupted) => Self::Damaged {
                path,
                what: source.to_string(),
            },
            _ => Self::Sqlite {
                path,
                action,
                source,
            },
        }
    }
}

/// Whether an error says that the file's content is broken, as opposed to the reading of it.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(code, _) => matches!(
            code.code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::TooBig
                | ErrorCode::TypeMismatch
                | ErrorCode::OperationInterrupted
                | ErrorCode::Unknown
        ),
        _ => true,
    }
}
