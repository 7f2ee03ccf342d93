//! Opening a case file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use throughline_profile::{Capture, Ledger};

use crate::error::StoreError;
use crate::schema::{self, Identity, VERSION, WorkLimit};
use crate::{CaptureWriter, Damage, Loaded, Rollup, facts, load, rollup};

/// An open case file.
#[derive(Debug)]
pub struct Case {
    path: PathBuf,
    conn: Connection,
    writable: bool,
    work: WorkLimit,
}

impl Drop for Case {
    fn drop(&mut self) {
        if self.writable {
            schema::settle(&self.conn);
        }
    }
}

/// What a case says of one of its captures, without its samples.
#[derive(Clone, Debug)]
pub struct CaptureSummary {
    /// Facts about the capture.
    pub capture: Capture,
    /// The ledger over both kinds of samples.
    pub ledger: Ledger,
    /// What of this could not be read.
    pub damage: Damage,
}

impl Case {
    /// Opens a case for recording into it; makes one when there is no file, or an empty one. A case of an older format is
    /// raised to the present one.
    ///
    /// # Errors
    /// When the file belongs to another program, is newer than this tool, is damaged, or cannot be written.
    /// Such a file is left as it is.
    pub fn create_or_open(path: &Path) -> Result<Self, StoreError> {
        check_header(path)?;
        let sqlite = |source| StoreError::from_sqlite(path, "open", source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
        schema::harden(&conn).map_err(sqlite)?;
        match schema::identify(&conn, path)? {
            Identity::Case { format: VERSION } => {}
            Identity::Empty | Identity::Case { .. } => schema::create_or_raise(&mut conn, path)?,
        }
        schema::prepare_to_write(&conn).map_err(sqlite)?;
        let work = WorkLimit::install(&mut conn).map_err(sqlite)?;
        Ok(Self {
            path: path.to_owned(),
            conn,
            writable: true,
            work,
        })
    }

    /// Opens a case for reading; also one that is being written, and one on a read-only disk.
    ///
    /// # Errors
    /// When there is no such file, it is not a case, is newer than this tool, or is damaged.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::NotFound(path.to_owned()));
        }
        check_header(path)?;
        let mut conn = match open_and_identify(path, "mode=ro") {
            // The log of a killed recorder needs a shared-memory file, which a read-only folder
            // cannot be given. Without a log the file is whole as it is.
            Err(StoreError::Sqlite { .. } | StoreError::ReadOnly(_)) => {
                if log_of(path).exists() {
                    return Err(StoreError::LogNotReadable(path.to_owned()));
                }
                open_and_identify(path, "immutable=1")
            }
            other => other,
        }?;
        let work = WorkLimit::install(&mut conn)
            .map_err(|source| StoreError::from_sqlite(path, "open", source))?;
        Ok(Self {
            path: path.to_owned(),
            conn,
            writable: false,
            work,
        })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a capture: takes the next number and writes what is known so far.
    ///
    /// The writer has a connection of its own. Several writers, also of several processes, may record
    /// into one case at the same time; their transactions take turns.
    ///
    /// # Errors
    /// When the file cannot be written, or another writer does not let go of it.
    pub fn begin_capture(&self, capture: &Capture) -> Result<CaptureWriter, StoreError> {
        let sqlite = |source| StoreError::from_sqlite(&self.path, "write", source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(&self.path, flags).map_err(sqlite)?;
        schema::harden(&conn)
            .and_then(|()| schema::prepare_to_write(&conn))
            .map_err(sqlite)?;
        let number = begin(&mut conn, capture).map_err(sqlite)?;
        CaptureWriter::new(self.path.clone(), conn, number)
    }

    /// All captures of the case, by number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn captures(&self) -> Result<Vec<CaptureSummary>, StoreError> {
        let sqlite = |source| StoreError::from_sqlite(&self.path, "read", source);
        let transaction = self.begin_reading()?;
        let mut summaries = Vec::new();
        for number in self.numbers(&transaction)? {
            let mut damage = Damage::default();
            let capture = facts::read(&transaction, number, &mut damage).map_err(sqlite)?;
            let [ledger, _, _] =
                facts::read_ledgers(&transaction, number, &mut damage).map_err(sqlite)?;
            summaries.push(CaptureSummary {
                capture,
                ledger,
                damage,
            });
        }
        Ok(summaries)
    }

    /// One capture as a profile; the newest when no number is given.
    ///
    /// # Errors
    /// When there is no such capture or the file cannot be read. Broken rows are no error: they are
    /// left out and counted.
    pub fn load(&self, number: Option<u32>) -> Result<Loaded, StoreError> {
        let sqlite = |source| StoreError::from_sqlite(&self.path, "read", source);
        let transaction = self.begin_reading()?;
        let number = self.resolve(&transaction, number)?;
        load::load(&transaction, number).map_err(sqlite)
    }

    /// The roll-up by function of one capture; `None` when the capture was never finished.
    ///
    /// # Errors
    /// When there is no such capture or the file cannot be read.
    pub fn rollup(&self, number: Option<u32>) -> Result<Option<Rollup>, StoreError> {
        let sqlite = |source| StoreError::from_sqlite(&self.path, "read", source);
        let transaction = self.begin_reading()?;
        let number = self.resolve(&transaction, number)?;
        rollup::read(&transaction, number).map_err(sqlite)
    }

    /// One transaction for all statements of an answer: a recorder may write between two of them.
    fn begin_reading(&self) -> Result<Transaction<'_>, StoreError> {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
        let bytes = size(&self.path).saturating_add(size(&log_of(&self.path)));
        self.work.renew(bytes);
        self.conn
            .unchecked_transaction()
            .map_err(|source| StoreError::from_sqlite(&self.path, "read", source))
    }

    fn numbers(&self, conn: &Connection) -> Result<Vec<u32>, StoreError> {
        let sqlite = |source| StoreError::from_sqlite(&self.path, "read", source);
        let mut query = conn
            .prepare(
                "SELECT capture FROM capture WHERE capture BETWEEN 1 AND 4294967295 ORDER BY 1",
            )
            .map_err(sqlite)?;
        query
            .query_map([], |row| row.get(0))
            .and_then(Iterator::collect)
            .map_err(sqlite)
    }

    fn resolve(&self, conn: &Connection, number: Option<u32>) -> Result<u32, StoreError> {
        let numbers = self.numbers(conn)?;
        let newest = *numbers
            .last()
            .ok_or_else(|| StoreError::NoCapture(self.path.clone()))?;
        let wanted = number.unwrap_or(newest);
        if numbers.contains(&wanted) {
            return Ok(wanted);
        }
        Err(StoreError::NoSuchCapture {
            path: self.path.clone(),
            number: wanted,
            held: match numbers.len() {
                1 => format!("only capture {newest}"),
                count => format!("{count} captures up to {newest}"),
            },
        })
    }
}

/// The next free number, taken and filled in one transaction.
fn begin(conn: &mut Connection, capture: &Capture) -> rusqlite::Result<u32> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let number = transaction.query_row(
        "SELECT coalesce(max(capture), 0) + 1 FROM capture",
        [],
        |row| row.get(0),
    )?;
    facts::write(&transaction, number, capture, false)?;
    transaction.commit()?;
    Ok(number)
}

fn open_and_identify(path: &Path, mode: &str) -> Result<Connection, StoreError> {
    let sqlite = |source| StoreError::from_sqlite(path, "open", source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(uri(path, mode), flags).map_err(sqlite)?;
    schema::harden(&conn).map_err(sqlite)?;
    match schema::identify(&conn, path)? {
        Identity::Case { .. } => Ok(conn),
        Identity::Empty => Err(StoreError::NoCapture(path.to_owned())),
    }
}

/// `file:` with every byte that a URI could take for its own written as `%hh`.
fn uri(path: &Path, mode: &str) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;

    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri + "?" + mode
}

/// The write-ahead log that SQLite keeps beside a file.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Refuses what has no SQLite header before SQLite is asked, which would take some files for empty.
fn check_header(path: &Path) -> Result<(), StoreError> {
    use std::io::Read as _;

    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    // Opening a FIFO would wait for its other end, and SQLite cannot lock a device.
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
        return Err(StoreError::Unreadable {
            path: path.to_owned(),
            why: "it is no regular file".to_owned(),
        });
    }
    let mut start = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file
            .take(MAGIC.len() as u64)
            .read_to_end(&mut start)
            .map_err(|source| unreadable(path, &source))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(path, &error)),
    };
    if start.is_empty() || start == MAGIC {
        return Ok(());
    }
    Err(StoreError::NotSqlite(path.to_owned()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    }
}
