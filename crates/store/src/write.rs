//! Writing a capture while it grows.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use throughline_profile::{Capture, Ledger, Profile, Sample, SampleKind, StringId};

use crate::error::StoreError;
use crate::rollup::Tally;
use crate::{codes, facts, rollup, schema};

/// The only writer of one capture.
///
/// Dropped without [`CaptureWriter::finish`], it leaves the capture readable and marked incomplete.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    file: FileId,
    conn: Connection,
    number: u32,
    written: Marks,
    facts: Option<(Capture, [Ledger; codes::LEDGER_SCOPES])>,
    tally: Tally,
    finished: bool,
}

/// Which file a path leads to: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        let facts = std::fs::metadata(path).ok()?;
        Some(Self(facts.dev(), facts.ino()))
    }
}

/// What one flush wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Samples taken over from the profile.
    pub samples: u64,
    /// New rows of all other tables.
    pub rows: u64,
}

/// Number of rows of each table that are in the file already.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    strings: usize,
    modules: usize,
    frames: usize,
    stacks: usize,
    threads: usize,
    samples: u64,
}

impl Marks {
    fn after(self, profile: &Profile) -> Self {
        Self {
            strings: profile.strings.len(),
            modules: profile.modules.len(),
            frames: profile.frames.len(),
            stacks: profile.stacks.len(),
            threads: profile.threads.len(),
            samples: self.samples + profile.samples.len() as u64,
        }
    }

    fn rows_since(self, before: Self) -> u64 {
        let rows = |marks: Self| {
            marks.strings + marks.modules + marks.frames + marks.stacks + marks.threads
        };
        (rows(self) - rows(before)) as u64
    }
}

impl CaptureWriter {
    pub(crate) fn new(path: PathBuf, conn: Connection, number: u32) -> Result<Self, StoreError> {
        let Some(file) = FileId::of(&path) else {
            return Err(StoreError::NotInPlace(path));
        };
        Ok(Self {
            path,
            file,
            conn,
            number,
            written: Marks::default(),
            facts: None,
            tally: Tally::default(),
            finished: false,
        })
    }

    /// Number of the capture in its case.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is new since the last flush in one transaction, and takes the samples out of the profile.
    ///
    /// # Errors
    /// On any error the file is as it was before, the profile still holds its samples, and the call
    /// may be repeated.
    pub fn flush(&mut self, profile: &mut Profile) -> Result<Flushed, StoreError> {
        self.check_continuation(profile)?;
        let next = self.written.after(profile);
        let facts = changed_facts(&self.facts, profile);
        let (number, written) = (self.number, self.written);
        self.transact(|transaction| {
            write_tables(transaction, number, profile, written)?;
            write_samples(transaction, number, profile, written.samples)?;
            if let Some((capture, [all, on_cpu, off_cpu])) = &facts {
                facts::write(transaction, number, capture, false)?;
                facts::write_ledgers(transaction, number, [all, on_cpu, off_cpu])?;
            }
            Ok(())
        })?;
        let flushed = Flushed {
            samples: next.samples - self.written.samples,
            rows: next.rows_since(self.written),
        };
        self.written = next;
        self.facts = facts.or_else(|| self.facts.take());
        for sample in profile.samples.drain() {
            self.tally.add(&sample);
        }
        Ok(flushed)
    }

    /// Writes the rest and the roll-up by function, and marks the capture complete.
    ///
    /// # Errors
    /// As [`CaptureWriter::flush`]; when only the last step fails, all samples are in the file and the
    /// capture stays marked incomplete.
    pub fn finish(&mut self, profile: &mut Profile) -> Result<Flushed, StoreError> {
        let flushed = self.flush(profile)?;
        let (number, tally) = (self.number, std::mem::take(&mut self.tally));
        let done = self.transact(|transaction| {
            rollup::write(transaction, number, profile, &tally)?;
            facts::write(transaction, number, &profile.capture, true)
        });
        self.tally = tally;
        done?;
        self.finished = true;
        // Folds the log into the file and waits for the disk. With readers about some of it may be
        // left to the last connection; the commit above already holds.
        let _ = self
            .conn
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(flushed)
    }

    fn check_continuation(&self, profile: &Profile) -> Result<(), StoreError> {
        let problem = if self.finished {
            "the capture is finished"
        } else if profile.strings.len() < self.written.strings
            || profile.modules.len() < self.written.modules
            || profile.frames.len() < self.written.frames
            || profile.stacks.len() < self.written.stacks
            || profile.threads.len() < self.written.threads
        {
            "a table has become shorter"
        } else {
            return Ok(());
        };
        Err(StoreError::NotAContinuation(problem))
    }

    fn transact(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        // SQLite would go on writing into a file that has no name any more, and all of it would be lost in the end.
        if FileId::of(&self.path) != Some(self.file) {
            return Err(StoreError::NotInPlace(self.path.clone()));
        }
        // Immediate: a transaction that began with a read could not wait for another writer.
        self.conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                write(&transaction)?;
                transaction.commit()
            })
            .map_err(|source| StoreError::from_sqlite(&self.path, "write", source))
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        schema::settle(&self.conn);
    }
}

/// The capture's facts and ledgers when they differ from what was written last.
fn changed_facts(
    last: &Option<(Capture, [Ledger; codes::LEDGER_SCOPES])>,
    profile: &Profile,
) -> Option<(Capture, [Ledger; codes::LEDGER_SCOPES])> {
    let capture = &profile.capture;
    let unchanged = last.as_ref().is_some_and(|(last_capture, ledgers)| {
        last_capture == capture && ledgers[0] == profile.ledger
    });
    (!unchanged).then(|| {
        let ledgers = [
            profile.ledger.clone(),
            capture.ledger_on_cpu.clone(),
            capture.ledger_off_cpu.clone(),
        ];
        (capture.clone(), ledgers)
    })
}

fn string(id: StringId) -> i64 {
    i64::from(id.0)
}

/// Rows beyond the marks, in the order in which they refer to each other.
fn write_tables(
    conn: &Connection,
    number: u32,
    profile: &Profile,
    written: Marks,
) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO string VALUES (?1, ?2, ?3)")?;
    for (id, text) in profile.strings.iter().skip(written.strings) {
        insert.execute(params![number, string(id), text])?;
    }

    let mut insert = conn.prepare_cached("INSERT INTO module VALUES (?1, ?2, ?3, ?4)")?;
    for (id, module) in profile.modules.iter().skip(written.modules) {
        insert.execute(params![
            number,
            id.0,
            string(module.path),
            module.build_id.map(string)
        ])?;
    }

    let mut insert = conn.prepare_cached(
        "INSERT INTO frame VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    for (id, frame) in profile.frames.iter().skip(written.frames) {
        insert.execute(params![
            number,
            id.0,
            codes::from_frame_kind(frame.kind),
            string(frame.name),
            frame.name_reason.map(string),
            frame.module.map(|module| module.0),
            frame.source.map(string),
            frame.line,
            frame.first_line,
            codes::from_address(frame.address),
            frame.inlined,
            frame.guessed,
        ])?;
    }

    let mut insert = conn.prepare_cached("INSERT INTO stack VALUES (?1, ?2, ?3, ?4)")?;
    for (id, parent, frame) in profile.stacks.iter().skip(written.stacks) {
        insert.execute(params![
            number,
            id.0,
            parent.map(|parent| parent.0),
            frame.0
        ])?;
    }

    let mut insert = conn.prepare_cached("INSERT INTO thread VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (id, thread) in profile.threads.iter().skip(written.threads) {
        insert.execute(params![
            number,
            id.0,
            thread.pid,
            thread.tid,
            string(thread.comm),
            thread.start_ns.map(codes::from_count),
        ])?;
    }
    Ok(())
}

/// Samples of both kinds, numbered together from `first` so that their order can be had back.
fn write_samples(
    conn: &Connection,
    number: u32,
    profile: &Profile,
    first: u64,
) -> rusqlite::Result<()> {
    let mut on_cpu = conn.prepare_cached(
        "INSERT INTO on_cpu_sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    let mut off_cpu = conn.prepare_cached(
        "INSERT INTO off_cpu_sample
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    for (place, sample) in (first..).zip(profile.samples.iter()) {
        let Sample {
            time,
            thread,
            stack,
            kind,
            lua,
            vm_state,
            category,
            flags,
        } = sample;
        let (place, time) = (codes::from_count(place), codes::from_count(time.0));
        let stack = stack.map(|stack| stack.0);
        let lua = codes::from_lua_context(*lua);
        let vm_state = vm_state.map(|state| state.0);
        match kind {
            SampleKind::OnCpu => on_cpu.execute(params![
                number,
                place,
                time,
                thread.0,
                stack,
                lua,
                vm_state,
                flags.0,
                category.map(|known| codes::from_category(known.category)),
                category.map(|known| known.may_be.0),
            ])?,
            SampleKind::OffCpu(off) => off_cpu.execute(params![
                number,
                place,
                time,
                thread.0,
                stack,
                lua,
                vm_state,
                flags.0,
                codes::from_count(off.duration.0),
                off.runnable.map(|runnable| codes::from_count(runnable.0)),
                codes::from_switch_reason(off.reason),
                off.waker.map(|waker| waker.0),
                off.idle,
            ])?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Case;
    use throughline_profile::{Frame, FrameKind, Thread};
    use throughline_units::Nanos;

    /// A flush's worth of samples, each with a stack of its own.
    fn add(profile: &mut Profile, round: u32) {
        let comm = profile.strings.intern("main");
        let thread = profile.threads.intern(Thread {
            pid: 1,
            tid: 1,
            comm,
            start_ns: None,
        });
        for i in 0..500 {
            let name = profile.strings.intern(&format!("function_{round}_{i}"));
            let frame = profile.frames.intern(Frame::new(FrameKind::Native, name));
            let stack = profile.stacks.push(None, frame);
            let time = Nanos(u64::from(round) << 32 | i);
            let sample = Sample::on_cpu(time, thread, Some(stack));
            profile.samples.push(sample);
        }
    }

    #[test]
    fn a_file_that_may_not_grow_is_a_full_disk_and_a_flush_may_be_repeated() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("case.tl");
        let case = Case::create_or_open(&path).expect("a case");
        let mut profile = Profile::default();
        let mut writer = case.begin_capture(&Capture::default()).expect("a capture");
        let pages = |limit: i64| {
            move |writer: &CaptureWriter| {
                writer
                    .conn
                    .pragma_update(None, "max_page_count", limit)
                    .expect("a limit");
            }
        };
        pages(60)(&writer);
        let mut flushed = 0;
        let error = loop {
            add(&mut profile, flushed as u32);
            match writer.flush(&mut profile) {
                Ok(done) => flushed += done.samples,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::DiskFull(_)), "{error}");
        let there = case.load(None).expect("a capture").profile.samples.len();
        assert_eq!(there as u64, flushed);

        pages(100_000)(&writer);
        let done = writer.flush(&mut profile).expect("space again");
        assert_eq!(done.samples, 500);
        writer.finish(&mut profile).expect("an end");
        let loaded = case.load(None).expect("a capture");
        assert!(loaded.damage.is_empty(), "{}", loaded.damage);
        assert_eq!(loaded.profile.samples.len() as u64, flushed + 500);
    }

    #[test]
    fn a_writer_that_is_kept_waiting_says_who_holds_the_file_and_loses_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("case.tl");
        let case = Case::create_or_open(&path).expect("a case");
        let mut profile = Profile::default();
        let mut writer = case.begin_capture(&Capture::default()).expect("a capture");
        let other = case.begin_capture(&Capture::default()).expect("another");
        other
            .conn
            .execute_batch("BEGIN IMMEDIATE")
            .expect("the lock");
        // The real writer waits longer; what it says is the same.
        let brief = std::time::Duration::from_millis(20);
        writer.conn.busy_timeout(brief).expect("a time-out");
        add(&mut profile, 0);
        let error = writer.flush(&mut profile).expect_err("the file is held");
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        assert!(error.to_string().contains("another recorder is writing"));
        other.conn.execute_batch("ROLLBACK").expect("the lock back");
        let flushed = writer.flush(&mut profile).expect("the file is free");
        assert_eq!(flushed.samples, 500);
    }

    /// CPU time of this thread in ns, as the scheduler accounts it.
    fn cpu_ns() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    #[test]
    fn a_second_at_499_hz_costs_less_than_a_hundredth_of_a_core() {
        let Some(before) = cpu_ns() else {
            eprintln!("SKIPPED: /proc/thread-self/schedstat: not readable");
            return;
        };
        let dir = tempfile::tempdir().expect("a folder");
        let case = Case::create_or_open(&dir.path().join("case.tl")).expect("a case");
        let mut profile = Profile::default();
        let mut writer = case.begin_capture(&Capture::default()).expect("a capture");
        let (mut spent, rounds) = (0, 20);
        for round in 0..rounds {
            // Worse than real: every sample brings a new name, frame and stack.
            add(&mut profile, round);
            let start = cpu_ns().unwrap_or(before);
            writer.flush(&mut profile).expect("a flush");
            spent += cpu_ns().unwrap_or(start) - start;
        }
        let per_flush = Nanos(spent / u64::from(rounds));
        eprintln!("500 samples, 500 new names, frames and stacks: {per_flush} of CPU time a flush");
        assert!(per_flush < Nanos(10_000_000), "{per_flush} a flush");
    }
}
