//! TCP sockets of a network namespace: /proc/PID/net/{tcp,tcp6}, see Documentation/networking/proc_net_tcp.rst.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::files::{fields, hex, lines, number};

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: State,
    /// 0 for one that no file holds: not accepted yet, or closed and waiting.
    pub(crate) inode: u64,
}

/// The states that matter here (include/net/tcp_states.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// 01 and 08: data can flow in at least one direction, and a process holds it.
    Connected,
    /// 0A.
    Listening,
    /// All others.
    Other,
}

/// Parses a table. Rows that do not parse (the header among them) are left out.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Socket> {
    lines(bytes).filter_map(parse_row).collect()
}

fn parse_row(line: &[u8]) -> Option<Socket> {
    let mut fields = fields(line);
    let local = address(fields.nth(1)?)?;
    let remote = address(fields.next()?)?;
    let state = match fields.next()? {
        b"01" | b"08" => State::Connected,
        b"0A" => State::Listening,
        _ => State::Other,
    };
    // tx_queue:rx_queue, tr:tm->when, retrnsmt, uid, timeout, inode.
    let inode = number(fields.nth(5)?)?;
    Some(Socket {
        local,
        remote,
        state,
        inode,
    })
}

/// `0100007F:1F90`. The address is 32-bit words, each printed as a number of the machine's byte order
/// although its bytes lie in the network's.
fn address(field: &[u8]) -> Option<SocketAddr> {
    let colon = field.iter().position(|&byte| byte == b':')?;
    let port = u16::try_from(hex(field.get(colon + 1..)?)?).ok()?;
    let words = field.get(..colon)?;
    let mut bytes = [0u8; 16];
    for (slot, word) in bytes.chunks_exact_mut(4).zip(words.chunks(8)) {
        let word = u32::try_from(hex(word)?).ok()?;
        slot.copy_from_slice(&if cfg!(target_endian = "little") {
            word.to_le_bytes()
        } else {
            word.to_be_bytes()
        });
    }
    let [a, b, c, d, ..] = bytes;
    let ip = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        // A v6 socket with a v4 peer has a mapped address; its other end is in the v4 table.
        32 => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The inode in a link of /proc/PID/fd, `socket:[12345]`.
pub(crate) fn inode_of_link(link: &[u8]) -> Option<u64> {
    number(link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

#[cfg(test)]
mod tests {
    use super::{State, inode_of_link, parse};

    // The addresses are of a little-endian machine, on which these tests run.
    #[test]
    fn both_tables_give_the_addresses_they_mean() {
        let sockets = parse(
            b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
              0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1061 1 0 100 0 0 10 0\n\
              1: 0100007F:1F90 0100007F:ADA0 01 00000000:00000000 00:00000000 00000000  33        0 7803 1 0 20 4 1 42 146\n\
              2: 0000000000000000FFFF00000100007F:0050 00000000000000000000000001000000:0001 08 0:0 0:0 0 0 0 9\n",
        );
        assert_eq!(sockets.len(), 3);
        assert_eq!(
            (sockets[0].state, sockets[0].local.to_string().as_str()),
            (State::Listening, "127.0.0.1:8080")
        );
        assert_eq!(
            (sockets[1].remote.to_string().as_str(), sockets[1].inode),
            ("127.0.0.1:44448", 7803)
        );
        assert_eq!(sockets[2].local.to_string(), "127.0.0.1:80");
        assert_eq!(
            (sockets[2].remote.to_string().as_str(), sockets[2].inode),
            ("[::1]:1", 9)
        );
    }

    #[test]
    fn damaged_rows_cost_only_themselves() {
        let sockets = parse(
            b"0: 0100007F 0:0 01 0 0 0 0 0 1\n1: ZZ:1 0100007F:1 01 a b c d e 1\n2: 0100007F:FFFFF 0100007F:1 01 a b c d e 1\n\
              3: 010000:1 0100007F:1 01 a b c d e 1\n\xff\xfe\n4: 0100007F:1 0100007F:2 01\n",
        );
        assert!(sockets.is_empty());
    }

    #[test]
    fn only_links_to_sockets_have_an_inode() {
        assert_eq!(inode_of_link(b"socket:[77]"), Some(77));
        assert_eq!(inode_of_link(b"pipe:[77]"), None);
        assert_eq!(inode_of_link(b"socket:[x"), None);
    }
}
