//! The network as the target's namespace sees it: /proc/PID/net/{snmp,netstat,softnet_stat}.
//!
//! Caveats: counters are of the whole network namespace, not of the target's sockets. softnet_stat is
//! of the machine.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    absence::{Absence, Reading, growth},
    files::{Roots, fields, hex, lines, number},
};

/// What the target's network namespace did in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkActivity {
    /// TCP segments sent (`OutSegs`).
    pub segments_sent: u64,
    /// TCP segments sent again.
    pub segments_retransmitted: u64,
    /// Connections made by this namespace.
    pub connections_opened: u64,
    /// Connections accepted by this namespace.
    pub connections_accepted: u64,
    /// Connections that completed and found the accept queue full.
    pub listen_overflows: u64,
    /// All connections dropped at a listening socket, overflows included.
    pub listen_drops: u64,
    /// SYNs dropped because the SYN queue was full.
    pub syn_drops: u64,
    /// Packets dropped before a protocol saw them, machine-wide.
    pub backlog_drops: u64,
    /// Times a core ran out of its budget with packets left, machine-wide.
    pub backlog_squeezes: u64,
}

/// Counters by `Table.Name`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<String, u64>);

/// Parses the paired lines of snmp and netstat: names, then values, both beginning with the table's name.
pub(crate) fn parse_tables(bytes: &[u8], into: &mut Counters) {
    let mut names: Option<&[u8]> = None;
    for line in lines(bytes) {
        let Some(header) = names.take() else {
            names = Some(line);
            continue;
        };
        let table = fields(line).next();
        if fields(header).next() != table {
            // The pair was broken; this line may be the names of the next one.
            names = Some(line);
            continue;
        }
        let table = String::from_utf8_lossy(table.unwrap_or_default()).into_owned();
        for (name, value) in fields(header).zip(fields(line)).skip(1) {
            // A few values are negative by design (MaxConn -1): not counters, left out.
            if let Some(value) = number(value) {
                into.0
                    .insert(format!("{table}{}", String::from_utf8_lossy(name)), value);
            }
        }
    }
}

/// Parses softnet_stat: a line per core, hexadecimal: processed, dropped, squeezed, ...
pub(crate) fn parse_softnet(bytes: &[u8], into: &mut Counters) {
    let (mut drops, mut squeezes, mut any) = (0u64, 0u64, false);
    for line in lines(bytes) {
        let mut columns = fields(line).skip(1).map(hex);
        if let (Some(Some(dropped)), Some(Some(squeezed))) = (columns.next(), columns.next()) {
            drops = drops.saturating_add(dropped);
            squeezes = squeezes.saturating_add(squeezed);
            any = true;
        }
    }
    if any {
        into.0.insert("softnet:dropped".into(), drops);
        into.0.insert("softnet:squeezed".into(), squeezes);
    }
}

/// Reads the counters of the namespace that process `pid` lives in.
pub(crate) fn snapshot(roots: &Roots, pid: u32) -> Reading<Counters> {
    let mut counters = Counters::default();
    parse_tables(&roots.proc_file(&format!("{pid}/net/snmp"))?, &mut counters);
    // netstat and softnet_stat are of newer kernels; what they lack is reported when it is looked up.
    if let Ok(bytes) = roots.proc_file(&format!("{pid}/net/netstat")) {
        parse_tables(&bytes, &mut counters);
    }
    if let Ok(bytes) = roots.proc_file(&format!("{pid}/net/softnet_stat")) {
        parse_softnet(&bytes, &mut counters);
    }
    Ok(counters)
}

pub(crate) fn between(first: &Counters, last: &Counters) -> Reading<NetworkActivity> {
    let grown = |name: &str| match (first.0.get(name), last.0.get(name)) {
        (Some(&first), Some(&last)) => growth(name, first, last),
        _ => Err(Absence::NotOffered(name.to_owned())),
    };
    Ok(NetworkActivity {
        segments_sent: grown("Tcp:OutSegs")?,
        segments_retransmitted: grown("Tcp:RetransSegs")?,
        connections_opened: grown("Tcp:ActiveOpens")?,
        connections_accepted: grown("Tcp:PassiveOpens")?,
        listen_overflows: grown("TcpExt:ListenOverflows")?,
        listen_drops: grown("TcpExt:ListenDrops")?,
        // Missing on kernels built without SYN cookies.
        syn_drops: grown("TcpExt:TCPReqQFullDrop").unwrap_or(0),
        backlog_drops: grown("softnet:dropped")?,
        backlog_squeezes: grown("softnet:squeezed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Counters, between, parse_softnet, parse_tables};
    use crate::absence::Absence;

    fn counters(snmp: &[u8], netstat: &[u8], softnet: &[u8]) -> Counters {
        let mut counters = Counters::default();
        parse_tables(snmp, &mut counters);
        parse_tables(netstat, &mut counters);
        parse_softnet(softnet, &mut counters);
        counters
    }

    const SNMP: &[u8] = b"Ip: A B\nIp: 1 2\nTcp: MaxConn ActiveOpens PassiveOpens OutSegs RetransSegs\nTcp: -1 1 2 1000 10\n";
    const NETSTAT: &[u8] = b"TcpExt: ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: 5 6 0\n";

    #[test]
    fn growth_is_found_by_name_whatever_the_columns_order() {
        let first = counters(
            SNMP,
            NETSTAT,
            b"00000010 00000001 00000000\n00000001 00000000 00000002\n",
        );
        let last = counters(
            b"Tcp: RetransSegs OutSegs PassiveOpens ActiveOpens\nTcp: 30 2000 5 1\n",
            b"TcpExt: ListenDrops ListenOverflows\nTcpExt: 9 7\n",
            b"00000010 0000000b 00000000\n00000001 00000000 00000003\n",
        );
        let network = between(&first, &last).unwrap();
        assert_eq!(
            (network.segments_sent, network.segments_retransmitted),
            (1000, 20)
        );
        assert_eq!(
            (
                network.listen_overflows,
                network.listen_drops,
                network.syn_drops
            ),
            (2, 3, 0)
        );
        assert_eq!((network.backlog_drops, network.backlog_squeezes), (10, 1));
    }

    #[test]
    fn a_missing_table_or_a_counter_going_backwards_is_a_reason() {
        let first = counters(SNMP, b"", b"0 0 0");
        assert!(matches!(
            between(&first, &first),
            Err(Absence::NotOffered(_))
        ));
        let (first, last) = (
            counters(SNMP, NETSTAT, b"0 0 0"),
            counters(
                b"Tcp: MaxConn ActiveOpens PassiveOpens OutSegs RetransSegs\nTcp: -1 1 2 10 10\n",
                NETSTAT,
                b"0 0 0",
            ),
        );
        assert!(matches!(
            between(&first, &last),
            Err(Absence::WentBackwards(_))
        ));
    }

    #[test]
    fn broken_pairs_are_skipped_without_a_panic() {
        let mut counters = Counters::default();
        parse_tables(
            b"Ip: A\nTcp: OutSegs\nTcp: 7\n\xff\xff\n\n\n",
            &mut counters,
        );
        assert_eq!(counters.0.get("Tcp:OutSegs"), Some(&7));
    }
}
