//! Facts about a capture: its own row, its targets, its warnings, its ledgers.

use rusqlite::{Connection, Row, params};
use throughline_profile::{Capture, CaptureKind, Ledger, LuaVm, RequestCount, Target};
use throughline_units::Nanos;

use crate::Damage;
use crate::codes::{self, ledger_entry};
use crate::error::is_damage;
use crate::schema;

/// Writes or rewrites all facts of a capture but its ledgers.
pub(crate) fn write(
    conn: &Connection,
    number: u32,
    capture: &Capture,
    complete: bool,
) -> rusqlite::Result<()> {
    let (requests, source, reason) = match &capture.requests {
        RequestCount::Counted { count, source } => {
            (Some(codes::from_count(*count)), Some(source), None)
        }
        RequestCount::NotCounted { reason } => (None, None, Some(reason)),
    };
    conn.prepare_cached(
        "INSERT INTO capture VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
            ?15, ?16, ?17)
         ON CONFLICT (capture) DO UPDATE SET
            complete = excluded.complete, on_cpu = excluded.on_cpu, off_cpu = excluded.off_cpu,
            rate_hz = excluded.rate_hz, duration_ns = excluded.duration_ns,
            started_unix_ns = excluded.started_unix_ns, host = excluded.host,
            kernel = excluded.kernel, tool = excluded.tool, min_block_ns = excluded.min_block_ns,
            max_block_ns = excluded.max_block_ns,
            bpf_ns_per_sample_mean = excluded.bpf_ns_per_sample_mean,
            recorder_cpu_ns = excluded.recorder_cpu_ns, requests = excluded.requests,
            requests_source = excluded.requests_source, requests_reason = excluded.requests_reason",
    )?
    .execute(params![
        number,
        complete,
        capture.kinds.contains(&CaptureKind::OnCpu),
        capture.kinds.contains(&CaptureKind::OffCpu),
        capture.rate_hz,
        codes::from_count(capture.duration.0),
        codes::from_count(capture.started_unix_ns),
        capture.host,
        capture.kernel,
        capture.tool,
        codes::from_count(capture.min_block_ns),
        codes::from_count(capture.max_block_ns),
        capture.bpf_ns_per_sample_mean,
        codes::from_count(capture.recorder_cpu.0),
        requests,
        source,
        reason,
    ])?;
    write_warnings(conn, number, &capture.warnings)?;
    write_targets(conn, number, &capture.targets)
}

fn write_warnings(conn: &Connection, number: u32, warnings: &[String]) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM capture_warning WHERE capture = ?1")?
        .execute([number])?;
    let mut insert = conn.prepare_cached("INSERT INTO capture_warning VALUES (?1, ?2, ?3)")?;
    for (place, text) in warnings.iter().enumerate() {
        insert.execute(params![number, place as i64, text])?;
    }
    Ok(())
}

fn write_targets(conn: &Connection, number: u32, targets: &[Target]) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM lua_vm WHERE capture = ?1")?
        .execute([number])?;
    conn.prepare_cached("DELETE FROM target WHERE capture = ?1")?
        .execute([number])?;
    let mut insert =
        conn.prepare_cached("INSERT INTO target VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    let mut insert_vm =
        conn.prepare_cached("INSERT INTO lua_vm VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (place, target) in targets.iter().enumerate() {
        insert.execute(params![
            number,
            place as i64,
            target.pid,
            target.comm,
            target.exe,
            target.lua_unreadable,
            target.cpu_ns.map(codes::from_count),
            codes::from_count(target.joined.0),
            target.ended.map(|ended| codes::from_count(ended.0)),
        ])?;
        for (vm_place, vm) in target.lua_vms.iter().enumerate() {
            insert_vm.execute(params![
                number,
                place as i64,
                vm_place as i64,
                codes::from_address(vm.global_state),
                vm.version,
                vm.layout,
                vm.gc64,
            ])?;
        }
    }
    Ok(())
}

/// Rewrites the three ledgers of a capture: all, on-CPU, off-CPU.
pub(crate) fn write_ledgers(
    conn: &Connection,
    number: u32,
    ledgers: [&Ledger; codes::LEDGER_SCOPES],
) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM ledger WHERE capture = ?1")?
        .execute([number])?;
    let mut insert = conn.prepare_cached("INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (scope, ledger) in ledgers.into_iter().enumerate() {
        let mut row = |entry: i64, reason: &str, samples: u64| {
            let samples = codes::from_count(samples);
            insert.execute(params![number, scope as i64, entry, reason, samples])
        };
        row(ledger_entry::TAKEN, "", ledger.taken)?;
        row(ledger_entry::KEPT, "", ledger.kept)?;
        for (reason, &samples) in &ledger.lost {
            row(ledger_entry::LOST, reason, samples)?;
        }
        for (flag, &samples) in &ledger.flagged {
            row(ledger_entry::FLAGGED, flag, samples)?;
        }
    }
    Ok(())
}

/// Everything about a capture but its ledgers; what cannot be read keeps its default and is counted.
pub(crate) fn read(
    conn: &Connection,
    number: u32,
    damage: &mut Damage,
) -> rusqlite::Result<Capture> {
    let mut capture = Capture::default();
    let sql = if schema::format(conn)? >= 2 {
        "SELECT complete, on_cpu, off_cpu, rate_hz, duration_ns, started_unix_ns, host, kernel,
            tool, min_block_ns, max_block_ns, bpf_ns_per_sample_mean, recorder_cpu_ns,
            requests, requests_source, requests_reason
         FROM capture WHERE capture = ?1"
    } else {
        "SELECT complete, on_cpu, off_cpu, rate_hz, duration_ns, started_unix_ns, host, kernel,
            tool, min_block_ns, max_block_ns, bpf_ns_per_sample_mean, recorder_cpu_ns,
            NULL, NULL, NULL
         FROM capture WHERE capture = ?1"
    };
    for_each_row(conn, "capture", sql, number, damage, |row| {
        capture = capture_of(row)?;
        Ok(())
    })?;
    capture.number = number;
    for_each_in_order(
        conn,
        "capture_warning",
        "SELECT warning, text FROM capture_warning WHERE capture = ?1 ORDER BY warning",
        number,
        damage,
        |_, row| {
            capture.warnings.push(row.get(1)?);
            Ok(())
        },
    )?;
    let mut places = Vec::new();
    for_each_in_order(
        conn,
        "target",
        "SELECT target, pid, comm, exe, lua_unreadable, cpu_ns, joined_ns, ended_ns
         FROM target WHERE capture = ?1 ORDER BY target",
        number,
        damage,
        |place, row| {
            capture.targets.push(target_of(row)?);
            places.push(place);
            Ok(())
        },
    )?;
    for_each_row(
        conn,
        "lua_vm",
        "SELECT target, global_state, version, layout, gc64
         FROM lua_vm WHERE capture = ?1 ORDER BY target, vm",
        number,
        damage,
        |row| {
            let place: i64 = row.get(0)?;
            let target = places
                .binary_search(&place)
                .ok()
                .and_then(|at| capture.targets.get_mut(at))
                .ok_or(BadRow("its target is missing"))?;
            target.lua_vms.push(LuaVm {
                global_state: codes::to_address(row.get(1)?),
                version: row.get(2)?,
                layout: row.get(3)?,
                gc64: row.get(4)?,
            });
            Ok(())
        },
    )?;
    Ok(capture)
}

fn capture_of(row: &Row<'_>) -> Result<Capture, BadRow> {
    let mut kinds = Vec::new();
    if row.get(1)? {
        kinds.push(CaptureKind::OnCpu);
    }
    if row.get(2)? {
        kinds.push(CaptureKind::OffCpu);
    }
    Ok(Capture {
        complete: row.get(0)?,
        kinds,
        rate_hz: row.get(3)?,
        duration: Nanos(count(row, 4)?),
        started_unix_ns: count(row, 5)?,
        host: row.get(6)?,
        kernel: row.get(7)?,
        tool: row.get(8)?,
        min_block_ns: count(row, 9)?,
        max_block_ns: count(row, 10)?,
        bpf_ns_per_sample_mean: row.get(11)?,
        recorder_cpu: Nanos(count(row, 12)?),
        requests: requests_of(row)?,
        ..Capture::default()
    })
}

fn requests_of(row: &Row<'_>) -> Result<RequestCount, BadRow> {
    let (source, reason): (Option<String>, Option<String>) = (row.get(14)?, row.get(15)?);
    Ok(match (optional_count(row, 13)?, source, reason) {
        (Some(count), Some(source), _) => RequestCount::Counted { count, source },
        (Some(_), None, _) => return Err(BadRow("a count of requests without its source")),
        (None, _, Some(reason)) => RequestCount::NotCounted { reason },
        (None, _, None) => RequestCount::default(),
    })
}

fn target_of(row: &Row<'_>) -> Result<Target, BadRow> {
    Ok(Target {
        pid: row.get(1)?,
        comm: row.get(2)?,
        exe: row.get(3)?,
        lua_vms: Vec::new(),
        lua_unreadable: row.get(4)?,
        cpu_ns: optional_count(row, 5)?,
        joined: Nanos(count(row, 6)?),
        ended: optional_count(row, 7)?.map(Nanos),
    })
}

/// The three ledgers of a capture: all, on-CPU, off-CPU.
pub(crate) fn read_ledgers(
    conn: &Connection,
    number: u32,
    damage: &mut Damage,
) -> rusqlite::Result<[Ledger; codes::LEDGER_SCOPES]> {
    let mut ledgers: [Ledger; codes::LEDGER_SCOPES] = Default::default();
    for_each_row(
        conn,
        "ledger",
        "SELECT scope, entry, reason, samples FROM ledger WHERE capture = ?1",
        number,
        damage,
        |row| {
            let ledger = ledgers
                .get_mut(usize::from(row.get::<_, u8>(0)?))
                .ok_or(BadRow("unknown scope"))?;
            let reason: String = row.get(2)?;
            let samples = count(row, 3)?;
            match row.get(1)? {
                ledger_entry::TAKEN => ledger.taken = samples,
                ledger_entry::KEPT => ledger.kept = samples,
                ledger_entry::LOST => drop(ledger.lost.insert(reason, samples)),
                ledger_entry::FLAGGED => drop(ledger.flagged.insert(reason, samples)),
                _ => return Err(BadRow("unknown entry")),
            }
            Ok(())
        },
    )?;
    Ok(ledgers)
}

/// Why a row is of no use.
pub(crate) struct BadRow(pub(crate) &'static str);

impl From<rusqlite::Error> for BadRow {
    /// Only for reading columns of a row at hand, where nothing but the value can be wrong.
    fn from(_: rusqlite::Error) -> Self {
        Self("a value has the wrong type or is out of range")
    }
}

/// A count or a number of nanoseconds.
pub(crate) fn count(row: &Row<'_>, column: usize) -> Result<u64, BadRow> {
    codes::to_count(row.get(column)?).ok_or(BadRow("a count is negative"))
}

/// A count that may be absent.
pub(crate) fn optional_count(row: &Row<'_>, column: usize) -> Result<Option<u64>, BadRow> {
    row.get::<_, Option<i64>>(column)?
        .map(|value| codes::to_count(value).ok_or(BadRow("a count is negative")))
        .transpose()
}

/// As [`for_each_row`], of a table whose first selected column is its ordered key.
///
/// In a crafted file the same rows may come again and again: the first that is out of order ends the table.
pub(crate) fn for_each_in_order(
    conn: &Connection,
    table: &'static str,
    sql: &str,
    number: u32,
    damage: &mut Damage,
    mut take: impl FnMut(i64, &Row<'_>) -> Result<(), BadRow>,
) -> rusqlite::Result<()> {
    let mut last = None;
    let mut out_of_order = false;
    for_each_row(conn, table, sql, number, damage, |row| {
        let key: i64 = row.get(0)?;
        out_of_order |= last.is_some_and(|last| key <= last);
        if out_of_order {
            return Err(BadRow("a key is not larger than the one before"));
        }
        last = Some(key);
        take(key, row)
    })
}

/// Gives each row of a capture to `take`; counts the rows that it refuses, and a table that breaks off.
pub(crate) fn for_each_row(
    conn: &Connection,
    table: &'static str,
    sql: &str,
    number: u32,
    damage: &mut Damage,
    mut take: impl FnMut(&Row<'_>) -> Result<(), BadRow>,
) -> rusqlite::Result<()> {
    let mut read = || {
        let mut query = conn.prepare_cached(sql)?;
        let mut rows = query.query([number])?;
        while let Some(row) = rows.next()? {
            if let Err(BadRow(reason)) = take(row) {
                damage.add(table, reason);
            }
        }
        Ok(())
    };
    match read() {
        Err(error) if is_damage(&error) => {
            damage.add(table, format!("not readable from here on: {error}"));
            Ok(())
        }
        done => done,
    }
}
