//! The roll-up of a capture: self and inclusive weight of every function, written when it ends.
//!
//! It answers questions over many captures ("this function in how many of them, with what share?")
//! without reading a sample. Names are text here, because handles differ from capture to capture.

use rusqlite::{Connection, params};
use rustc_hash::FxHashMap;
use throughline_profile::{
    Cost, Frame, FrameKind, Groups, LuaContext, Measure, Profile, Sample, StackWeights, StringId,
};

use crate::facts::{BadRow, count, for_each_row};
use crate::{Damage, codes};

/// What a finished capture says of its functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Denominators, by measure and Lua context.
    pub totals: Vec<RollupTotal>,
    /// Functions with any weight, by measure.
    pub functions: Vec<FunctionCost>,
    /// Rows that could not be used.
    pub damage: Damage,
}

/// All samples of one measure and one Lua context together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupTotal {
    /// What is counted.
    pub measure: Measure,
    /// Whether the samples carry Lua frames, and why not.
    pub lua: LuaContext,
    /// Number of samples, also those without any stack.
    pub samples: u64,
    /// Their weight: samples again for on-CPU, ns otherwise.
    pub weight: u64,
}

/// One function in one measure; weights are samples for on-CPU, ns otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCost {
    /// What is counted.
    pub measure: Measure,
    /// What sort of code.
    pub kind: FrameKind,
    /// Function name.
    pub name: String,
    /// Path of its module; empty for Lua and where there is none.
    pub module: String,
    /// Chunk name of a Lua function; empty otherwise.
    pub source: String,
    /// Line where a Lua function is defined; 0 otherwise.
    pub first_line: u32,
    /// Weight of the stacks that end in it.
    pub self_weight: u64,
    /// Weight of the stacks whose innermost Lua frame is in it, whatever C code that has called.
    pub lua_self_weight: u64,
    /// Weight of the stacks that hold it; recursion counts once.
    pub inclusive_weight: u64,
}

/// Sums over the samples that have been written, kept while the recording runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    measures: [MeasureTally; Measure::ALL.len()],
}

#[derive(Debug, Default)]
struct MeasureTally {
    stacks: StackWeights,
    /// Samples and weight, by place in `LuaContext::ALL`.
    lua: [(u64, u64); LuaContext::ALL.len()],
}

impl Tally {
    pub(crate) fn add(&mut self, sample: &Sample) {
        let (measure, weight) = Measure::of(sample.kind);
        let by_lua = LuaContext::ALL.iter().position(|&lua| lua == sample.lua);
        for (known, tally) in Measure::ALL.iter().zip(&mut self.measures) {
            if *known != measure {
                continue;
            }
            if let Some((samples, sum)) = by_lua.and_then(|at| tally.lua.get_mut(at)) {
                *samples += 1;
                *sum = sum.saturating_add(weight);
            }
            if let Some(stack) = sample.stack {
                tally.stacks.add(stack, weight);
            }
        }
    }
}

/// A function across captures: by the text of its module, since files of one path may differ in build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: FrameKind,
    name: StringId,
    module: Option<StringId>,
    source: Option<StringId>,
    first_line: u32,
}

impl Key {
    fn of(profile: &Profile, frame: &Frame) -> Self {
        let function = throughline_profile::Function::of(frame);
        let with_text = |id: StringId| (!profile.strings.get(id).is_empty()).then_some(id);
        Self {
            kind: function.kind,
            name: function.name,
            module: function
                .module
                .and_then(|module| with_text(profile.modules.get(module).path)),
            source: function.source.and_then(with_text),
            first_line: function.first_line,
        }
    }
}

/// Writes both tables of the roll-up.
pub(crate) fn write(
    conn: &Connection,
    number: u32,
    profile: &Profile,
    tally: &Tally,
) -> rusqlite::Result<()> {
    let functions = Groups::by(&profile.frames, |frame| Some(Key::of(profile, frame)));
    let lua_functions = Groups::by(&profile.frames, |frame| {
        frame.kind.is_lua().then(|| Key::of(profile, frame))
    });
    for (measure, tally) in Measure::ALL.into_iter().zip(&tally.measures) {
        write_totals(conn, number, measure, tally)?;
        let lua_self: FxHashMap<Key, u64> = lua_functions
            .roll_up(&profile.stacks, &tally.stacks)
            .into_iter()
            .map(|(key, cost)| (key, cost.self_weight))
            .collect();
        let costs = functions.roll_up(&profile.stacks, &tally.stacks);
        write_functions(conn, number, profile, measure, costs, &lua_self)?;
    }
    Ok(())
}

fn write_totals(
    conn: &Connection,
    number: u32,
    measure: Measure,
    tally: &MeasureTally,
) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO rollup_total VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (lua, (samples, weight)) in LuaContext::ALL.into_iter().zip(tally.lua) {
        if samples > 0 {
            insert.execute(params![
                number,
                codes::from_measure(measure),
                codes::from_lua_context(lua),
                codes::from_count(samples),
                codes::from_count(weight),
            ])?;
        }
    }
    Ok(())
}

fn write_functions(
    conn: &Connection,
    number: u32,
    profile: &Profile,
    measure: Measure,
    costs: Vec<(Key, Cost)>,
    lua_self: &FxHashMap<Key, u64>,
) -> rusqlite::Result<()> {
    let text = |id: Option<StringId>| id.map_or("", |id| profile.strings.get(id));
    let mut insert = conn.prepare_cached(
        "INSERT INTO rollup_function VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (key, cost) in costs {
        insert.execute(params![
            number,
            codes::from_measure(measure),
            codes::from_frame_kind(key.kind),
            profile.strings.get(key.name),
            text(key.module),
            text(key.source),
            key.first_line,
            codes::from_count(cost.self_weight),
            codes::from_count(lua_self.get(&key).copied().unwrap_or(0)),
            codes::from_count(cost.inclusive),
        ])?;
    }
    Ok(())
}

/// Reads the roll-up back, with what of it could not be used.
pub(crate) fn read(conn: &Connection, number: u32) -> rusqlite::Result<Option<Rollup>> {
    let complete: bool = conn.query_row(
        "SELECT complete = 1 FROM capture WHERE capture = ?1",
        [number],
        |row| row.get(0),
    )?;
    if !complete {
        return Ok(None);
    }
    let mut rollup = Rollup::default();
    let Rollup {
        totals,
        functions,
        damage,
    } = &mut rollup;
    for_each_row(
        conn,
        "rollup_total",
        "SELECT measure, lua_context, samples, weight FROM rollup_total WHERE capture = ?1",
        number,
        damage,
        |row| {
            totals.push(RollupTotal {
                measure: codes::to_measure(row.get(0)?).ok_or(BadRow("unknown measure"))?,
                lua: codes::to_lua_context(row.get(1)?).ok_or(BadRow("unknown Lua context"))?,
                samples: count(row, 2)?,
                weight: count(row, 3)?,
            });
            Ok(())
        },
    )?;
    for_each_row(
        conn,
        "rollup_function",
        "SELECT measure, kind, name, module, source, first_line, self_weight, lua_self_weight,
            inclusive_weight
         FROM rollup_function WHERE capture = ?1",
        number,
        damage,
        |row| {
            functions.push(FunctionCost {
                measure: codes::to_measure(row.get(0)?).ok_or(BadRow("unknown measure"))?,
                kind: codes::to_frame_kind(row.get(1)?).ok_or(BadRow("unknown kind of frame"))?,
                name: row.get(2)?,
                module: row.get(3)?,
                source: row.get(4)?,
                first_line: row.get(5)?,
                self_weight: count(row, 6)?,
                lua_self_weight: count(row, 7)?,
                inclusive_weight: count(row, 8)?,
            });
            Ok(())
        },
    )?;
    Ok(Some(rollup))
}
