//! Pressure stall information, see Documentation/accounting/psi.rst. Totals are microseconds.
//!
//! Caveats: machine-wide, not of the target; "some" counts time in which at least one task stalled,
//! so it says that somebody waited and not who.

use serde::Serialize;

use crate::{
    absence::{Absence, Reading, growth},
    files::{Roots, fields, lines, number},
};

/// The stalls of the three resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Pressure {
    /// Runnable tasks without a core.
    pub cpu: Reading<PressureShares>,
    /// Tasks waiting for block I/O.
    pub io: Reading<PressureShares>,
    /// Tasks waiting for memory.
    pub memory: Reading<PressureShares>,
}

/// Shares of the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PressureShares {
    /// At least one task stalled.
    pub some_share: f64,
    /// Every non-idle task stalled; 0 where the kernel does not define it (cpu, machine-wide).
    pub full_share: f64,
}

/// Totals in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    some_us: u64,
    full_us: u64,
}

pub(crate) fn parse(what: &str, bytes: &[u8]) -> Reading<Totals> {
    let total = |kind: &[u8]| {
        lines(bytes)
            .find(|line| fields(line).next() == Some(kind))
            .and_then(|line| fields(line).find_map(|field| number(field.strip_prefix(b"total=")?)))
    };
    let some_us =
        total(b"some").ok_or_else(|| Absence::damaged(what, "no line \"some\" with a total"))?;
    Ok(Totals {
        some_us,
        full_us: total(b"full").unwrap_or(0),
    })
}

/// Readings of the three files.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot([Reading<Totals>; 3]);

pub(crate) fn snapshot(roots: &Roots) -> Snapshot {
    Snapshot(
        ["pressure/cpu", "pressure/io", "pressure/memory"].map(|file| {
            let what = format!("/proc/{file}");
            roots.proc_file(file).and_then(|bytes| parse(&what, &bytes))
        }),
    )
}

pub(crate) fn between(first: &Snapshot, last: &Snapshot, window_ns: u64) -> Pressure {
    let of = |index: usize, what: &str| -> Reading<PressureShares> {
        let (Some(first), Some(last)) = (first.0.get(index), last.0.get(index)) else {
            return Err(Absence::NotOffered(what.to_owned()));
        };
        let (first, last) = (
            first.as_ref().map_err(Clone::clone)?,
            last.as_ref().map_err(Clone::clone)?,
        );
        let share = |grown_us: u64| {
            if window_ns == 0 {
                0.0
            } else {
                (grown_us as f64 * 1000.0 / window_ns as f64).min(1.0)
            }
        };
        Ok(PressureShares {
            some_share: share(growth(what, first.some_us, last.some_us)?),
            full_share: share(growth(what, first.full_us, last.full_us)?),
        })
    };
    Pressure {
        cpu: of(0, "pressure/cpu"),
        io: of(1, "pressure/io"),
        memory: of(2, "pressure/memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Snapshot, between, parse};
    use crate::absence::Absence;

    const FIRST: &[u8] = b"some avg10=4.94 avg60=1.27 avg300=0.49 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    const LAST: &[u8] = b"some avg10=4.94 avg60=1.27 avg300=0.49 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n";

    #[test]
    fn a_stall_of_half_a_second_in_two_is_a_share_of_a_quarter() {
        let missing = Absence::NotOffered("/proc/pressure/io".into());
        let first = Snapshot([
            parse("cpu", FIRST),
            Err(missing.clone()),
            parse("memory", LAST),
        ]);
        let last = Snapshot([
            parse("cpu", LAST),
            Err(missing.clone()),
            parse("memory", FIRST),
        ]);
        let pressure = between(&first, &last, 2_000_000_000);
        let cpu = pressure.cpu.unwrap();
        assert_eq!((cpu.some_share, cpu.full_share), (0.25, 0.125));
        assert_eq!(pressure.io.unwrap_err(), missing);
        assert!(matches!(pressure.memory, Err(Absence::WentBackwards(_))));
    }

    #[test]
    fn a_file_without_totals_is_damaged() {
        assert!(parse("x", b"some avg10=1\n").is_err());
        assert!(parse("x", b"\xff\xff").is_err());
        assert!(parse("x", b"some total=-4").is_err());
    }
}
