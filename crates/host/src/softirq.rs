//! Soft interrupts by kind: /proc/softirqs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    absence::{Absence, Reading},
    files::{fields, lines, number},
};

/// How often one kind of soft interrupt ran in the window, all cores together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SoftirqCount {
    /// NET_RX, TIMER, ...
    pub kind: String,
    /// Runs.
    pub count: u64,
}

pub(crate) fn parse(bytes: &[u8]) -> Reading<BTreeMap<String, u64>> {
    let kinds: BTreeMap<String, u64> = lines(bytes)
        .filter_map(|line| {
            let mut fields = fields(line);
            let kind = fields.next()?.strip_suffix(b":")?;
            let sum = fields.filter_map(number).fold(0u64, u64::saturating_add);
            Some((crate::printable(kind), sum))
        })
        .collect();
    if kinds.is_empty() {
        return Err(Absence::damaged(
            "/proc/softirqs",
            "no kinds of soft interrupt",
        ));
    }
    Ok(kinds)
}

/// Growth by kind; a kind whose counter went backwards (a core went offline) is left out.
pub(crate) fn between(
    first: &BTreeMap<String, u64>,
    last: &BTreeMap<String, u64>,
) -> Vec<SoftirqCount> {
    last.iter()
        .filter_map(|(kind, last)| {
            Some(SoftirqCount {
                kind: kind.clone(),
                count: last.checked_sub(*first.get(kind)?)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{between, parse};

    #[test]
    fn kinds_are_summed_over_cores() {
        let first = parse(b"      CPU0  CPU1\n  NET_RX:  10  20\n  TIMER: 5 5\n").unwrap();
        let last = parse(b"      CPU0  CPU1\n  NET_RX:  15  27\n  TIMER: 4 5\n").unwrap();
        let grown = between(&first, &last);
        assert_eq!(grown.len(), 1);
        assert_eq!((grown[0].kind.as_str(), grown[0].count), ("NET_RX", 12));
        assert!(parse(b"").is_err());
    }
}
