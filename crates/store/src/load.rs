//! Reading a capture back into a profile.

use rusqlite::{Connection, Row};
use rustc_hash::FxHashMap;
use throughline_profile::{
    CategorySet, Classified, Flags, Frame, FrameId, Ledger, Module, ModuleId, OffCpu, Profile,
    Sample, SampleKind, StackId, StringId, Thread, ThreadId, VmState,
};
use throughline_units::Nanos;

use crate::facts::{self, BadRow, count, for_each_in_order, optional_count};
use crate::{Damage, codes, schema};

/// A capture as a profile, and what of it could not be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The capture. Samples that had to be left out are in its ledgers as [`Loaded::DAMAGED`].
    pub profile: Profile,
    /// Rows that were left out or mended.
    pub damage: Damage,
}

impl Loaded {
    /// The kind of loss under which the ledger counts samples whose rows are broken.
    pub const DAMAGED: &'static str = "damaged_in_case_file";
}

/// Reads one capture that exists.
pub(crate) fn load(conn: &Connection, number: u32) -> rusqlite::Result<Loaded> {
    let mut damage = Damage::default();
    let mut profile = Profile {
        capture: facts::read(conn, number, &mut damage)?,
        ..Profile::default()
    };
    let [all, on_cpu, off_cpu] = facts::read_ledgers(conn, number, &mut damage)?;
    profile.ledger = all;
    profile.capture.ledger_on_cpu = on_cpu;
    profile.capture.ledger_off_cpu = off_cpu;

    let mut loader = Loader {
        conn,
        number,
        profile,
        damage,
        handles: Handles::default(),
    };
    loader.strings()?;
    loader.modules()?;
    loader.frames()?;
    loader.stacks()?;
    loader.threads()?;
    loader.samples()?;
    Ok(Loaded {
        profile: loader.profile,
        damage: loader.damage,
    })
}

/// Handles of the profile by the numbers in the file. The two are equal in a sound file.
#[derive(Default)]
struct Handles {
    strings: FxHashMap<i64, StringId>,
    modules: FxHashMap<i64, ModuleId>,
    frames: FxHashMap<i64, FrameId>,
    stacks: FxHashMap<i64, StackId>,
    threads: FxHashMap<i64, ThreadId>,
}

impl Handles {
    fn string(&self, row: &Row<'_>, column: usize) -> Result<StringId, BadRow> {
        known(
            &self.strings,
            row.get(column)?,
            "refers to a missing string",
        )
    }

    fn optional_string(&self, row: &Row<'_>, column: usize) -> Result<Option<StringId>, BadRow> {
        row.get::<_, Option<i64>>(column)?
            .map(|id| known(&self.strings, id, "refers to a missing string"))
            .transpose()
    }
}

fn known<T: Copy>(
    handles: &FxHashMap<i64, T>,
    id: i64,
    problem: &'static str,
) -> Result<T, BadRow> {
    handles.get(&id).copied().ok_or(BadRow(problem))
}

struct Loader<'a> {
    conn: &'a Connection,
    number: u32,
    profile: Profile,
    damage: Damage,
    handles: Handles,
}

impl Loader<'_> {
    fn strings(&mut self) -> rusqlite::Result<()> {
        let (handles, profile) = (&mut self.handles, &mut self.profile);
        for_each_in_order(
            self.conn,
            "string",
            "SELECT string, text FROM string WHERE capture = ?1 ORDER BY string",
            self.number,
            &mut self.damage,
            |key, row| {
                let text = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
                handles.strings.insert(key, profile.strings.intern(text));
                Ok(())
            },
        )
    }

    fn modules(&mut self) -> rusqlite::Result<()> {
        let (handles, profile) = (&mut self.handles, &mut self.profile);
        for_each_in_order(
            self.conn,
            "module",
            "SELECT module, path, build_id FROM module WHERE capture = ?1 ORDER BY module",
            self.number,
            &mut self.damage,
            |key, row| {
                let module = profile.modules.intern(Module {
                    path: handles.string(row, 1)?,
                    build_id: handles.optional_string(row, 2)?,
                });
                handles.modules.insert(key, module);
                Ok(())
            },
        )
    }

    fn frames(&mut self) -> rusqlite::Result<()> {
        let (handles, profile) = (&mut self.handles, &mut self.profile);
        for_each_in_order(
            self.conn,
            "frame",
            "SELECT frame, kind, name, name_reason, module, source, line, first_line, address,
                inlined, guessed
             FROM frame WHERE capture = ?1 ORDER BY frame",
            self.number,
            &mut self.damage,
            |key, row| {
                let frame = profile.frames.intern(frame_of(row, handles)?);
                handles.frames.insert(key, frame);
                Ok(())
            },
        )
    }

    fn stacks(&mut self) -> rusqlite::Result<()> {
        let (handles, profile) = (&mut self.handles, &mut self.profile);
        for_each_in_order(
            self.conn,
            "stack",
            "SELECT stack, parent, frame FROM stack WHERE capture = ?1 ORDER BY stack",
            self.number,
            &mut self.damage,
            |key, row| {
                // Parents come first, so a cycle would need a parent that is not there yet.
                let parent = row
                    .get::<_, Option<i64>>(1)?
                    .map(|id| known(&handles.stacks, id, "its parent is not an earlier stack"))
                    .transpose()?;
                let frame = known(&handles.frames, row.get(2)?, "refers to a missing frame")?;
                let stack = profile.stacks.push(parent, frame);
                handles.stacks.insert(key, stack);
                Ok(())
            },
        )
    }

    fn threads(&mut self) -> rusqlite::Result<()> {
        let (handles, profile) = (&mut self.handles, &mut self.profile);
        for_each_in_order(
            self.conn,
            "thread",
            "SELECT thread, pid, tid, comm, start_ns FROM thread WHERE capture = ?1 ORDER BY thread",
            self.number,
            &mut self.damage,
            |key, row| {
                let thread = profile.threads.intern(Thread {
                    pid: row.get(1)?,
                    tid: row.get(2)?,
                    comm: handles.string(row, 3)?,
                    start_ns: optional_count(row, 4)?,
                });
                handles.threads.insert(key, thread);
                Ok(())
            },
        )
    }

    /// Samples of both kinds in their common order; broken ones move from kept to lost.
    fn samples(&mut self) -> rusqlite::Result<()> {
        let before = self.damage.total();
        let mut samples: Vec<(i64, Sample)> = Vec::new();
        let handles = &self.handles;
        let sql = if schema::format(self.conn)? >= 2 {
            "SELECT sample, time_ns, thread, stack, lua_context, vm_state, flags, category, may_be
             FROM on_cpu_sample WHERE capture = ?1 ORDER BY sample"
        } else {
            "SELECT sample, time_ns, thread, stack, lua_context, vm_state, flags, NULL, NULL
             FROM on_cpu_sample WHERE capture = ?1 ORDER BY sample"
        };
        for_each_in_order(
            self.conn,
            "on_cpu_sample",
            sql,
            self.number,
            &mut self.damage,
            |key, row| {
                let mut sample = sample_of(row, handles, SampleKind::OnCpu)?;
                sample.category = category_of(row)?;
                samples.push((key, sample));
                Ok(())
            },
        )?;
        let on_cpu = samples.len() as u64;
        for_each_in_order(
            self.conn,
            "off_cpu_sample",
            "SELECT sample, time_ns, thread, stack, lua_context, vm_state, flags,
                duration_ns, runnable_ns, reason, waker, idle
             FROM off_cpu_sample WHERE capture = ?1 ORDER BY sample",
            self.number,
            &mut self.damage,
            |key, row| {
                let kind = SampleKind::OffCpu(off_cpu_of(row, handles)?);
                samples.push((key, sample_of(row, handles, kind)?));
                Ok(())
            },
        )?;
        let off_cpu = samples.len() as u64 - on_cpu;

        samples.sort_by_key(|&(place, _)| place);
        for (_, sample) in samples {
            self.profile.samples.push(sample);
        }
        if self.damage.total() > before {
            let profile = &mut self.profile;
            own_up(&mut profile.ledger, on_cpu + off_cpu);
            own_up(&mut profile.capture.ledger_on_cpu, on_cpu);
            own_up(&mut profile.capture.ledger_off_cpu, off_cpu);
        }
        Ok(())
    }
}

/// Moves the samples that are not there any more from kept to lost.
fn own_up(ledger: &mut Ledger, there: u64) {
    let missing = ledger.kept.saturating_sub(there);
    ledger.kept -= missing;
    ledger.lose(Loaded::DAMAGED, missing);
}

fn frame_of(row: &Row<'_>, handles: &Handles) -> Result<Frame, BadRow> {
    Ok(Frame {
        kind: codes::to_frame_kind(row.get(1)?).ok_or(BadRow("unknown kind of frame"))?,
        name: handles.string(row, 2)?,
        name_reason: handles.optional_string(row, 3)?,
        module: row
            .get::<_, Option<i64>>(4)?
            .map(|id| known(&handles.modules, id, "refers to a missing module"))
            .transpose()?,
        source: handles.optional_string(row, 5)?,
        line: row.get(6)?,
        first_line: row.get(7)?,
        address: codes::to_address(row.get(8)?),
        inlined: row.get(9)?,
        guessed: row.get(10)?,
    })
}

fn sample_of(row: &Row<'_>, handles: &Handles, kind: SampleKind) -> Result<Sample, BadRow> {
    Ok(Sample {
        time: Nanos(count(row, 1)?),
        thread: known(&handles.threads, row.get(2)?, "refers to a missing thread")?,
        stack: row
            .get::<_, Option<i64>>(3)?
            .map(|id| known(&handles.stacks, id, "refers to a missing stack"))
            .transpose()?,
        kind,
        lua: codes::to_lua_context(row.get(4)?).ok_or(BadRow("unknown Lua context"))?,
        vm_state: row.get::<_, Option<i32>>(5)?.map(VmState),
        category: None,
        flags: Flags(row.get(6)?),
    })
}

fn category_of(row: &Row<'_>) -> Result<Option<Classified>, BadRow> {
    let Some(code) = row.get::<_, Option<i64>>(7)? else {
        return Ok(None);
    };
    Ok(Some(Classified {
        category: codes::to_category(code).ok_or(BadRow("unknown category"))?,
        may_be: CategorySet(row.get::<_, Option<u32>>(8)?.unwrap_or(0)),
    }))
}

fn off_cpu_of(row: &Row<'_>, handles: &Handles) -> Result<OffCpu, BadRow> {
    Ok(OffCpu {
        duration: Nanos(count(row, 7)?),
        runnable: optional_count(row, 8)?.map(Nanos),
        reason: codes::to_switch_reason(row.get(9)?).ok_or(BadRow("unknown reason"))?,
        waker: row
            .get::<_, Option<i64>>(10)?
            .map(|id| known(&handles.threads, id, "refers to a missing waker"))
            .transpose()?,
        idle: row.get(11)?,
    })
}
