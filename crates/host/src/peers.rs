//! Who is at the other ends of the targets' TCP connections, when that is on this machine.
//!
//! A connection between two local sockets is in the tables twice, with its ends swapped. The target's
//! row is the one whose inode the target holds; the mirrored row's inode leads to the other process.
//! What arrives at a port the target listens on comes from a load generator; what the target opened
//! goes to an upstream.
//!
//! Caveats: Unix-domain sockets have no mirrored row and are not followed; a proxy that rewrites addresses
//! (NAT) hides the mirror; a connection that lives for less than a look is missed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

use crate::{
    files::Roots,
    sockets::{self, Socket, State},
};

/// More network namespaces than this are not searched; a table is read for each.
const MOST_NAMESPACES: usize = 64;
/// Links of /proc/PID/fd read in one search, at about a microsecond each.
const MOST_LINKS: usize = 400_000;

/// What one search found.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    pub(crate) upstream: Direction,
    pub(crate) load: Direction,
    /// What kept the search from being complete.
    pub(crate) limits: Vec<String>,
}

/// One direction of the targets' connections.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Direction {
    pub(crate) pids: BTreeSet<u32>,
    pub(crate) connections: usize,
    pub(crate) elsewhere: usize,
    /// Connections whose other end is a target too: a gateway that calls itself.
    pub(crate) within: usize,
}

/// Which direction a socket leads in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leads {
    Upstream,
    Load,
}

/// Searches the connections of `targets`, given all pids of the machine.
pub(crate) fn find(roots: &Roots, targets: &[u32], all: &[u32]) -> Found {
    let mut found = Found::default();
    let namespaces = namespaces(roots, targets, all);
    if namespaces.len() > MOST_NAMESPACES {
        found.limits.push(format!(
            "{} network namespaces, {MOST_NAMESPACES} searched",
            namespaces.len()
        ));
    }
    let tables: Vec<Vec<Socket>> = namespaces
        .iter()
        .take(MOST_NAMESPACES)
        .map(|&pid| table(roots, pid))
        .collect();
    let mut links = Links { read: 0, denied: 0 };
    let held: HashSet<u64> = targets
        .iter()
        .flat_map(|&pid| links.inodes(roots, pid))
        .collect();
    let wanted = other_ends(&tables, &held, &mut found);
    if !wanted.is_empty() {
        for &pid in all.iter().filter(|pid| !targets.contains(pid)) {
            if links.read > MOST_LINKS {
                found.limits.push(format!(
                    "more than {MOST_LINKS} open files, the rest not searched"
                ));
                break;
            }
            for inode in links.inodes(roots, pid) {
                match wanted.get(&inode) {
                    Some(Leads::Upstream) => _ = found.upstream.pids.insert(pid),
                    Some(Leads::Load) => _ = found.load.pids.insert(pid),
                    None => {}
                }
            }
        }
    }
    if links.denied > 0 {
        found.limits.push(format!(
            "no permission to see the sockets of other users' processes ({} of them)",
            links.denied
        ));
    }
    found
}

/// The inodes at the other ends, by direction; connections are counted into `found`.
fn other_ends(
    tables: &[Vec<Socket>],
    held: &HashSet<u64>,
    found: &mut Found,
) -> HashMap<u64, Leads> {
    let everything = || tables.iter().flatten();
    let mirrors: HashMap<(SocketAddr, SocketAddr), u64> = everything()
        .filter(|socket| socket.state == State::Connected && socket.inode != 0)
        .map(|socket| ((socket.local, socket.remote), socket.inode))
        .collect();
    let mut wanted = HashMap::new();
    for table in tables {
        let ports: HashSet<u16> = table
            .iter()
            .filter(|socket| socket.state == State::Listening && held.contains(&socket.inode))
            .map(|socket| socket.local.port())
            .collect();
        for socket in table
            .iter()
            .filter(|socket| socket.state == State::Connected && held.contains(&socket.inode))
        {
            let leads = if ports.contains(&socket.local.port()) {
                Leads::Load
            } else {
                Leads::Upstream
            };
            let direction = match leads {
                Leads::Load => &mut found.load,
                Leads::Upstream => &mut found.upstream,
            };
            direction.connections += 1;
            let end = mirrors
                .get(&(socket.remote, socket.local))
                .copied()
                .or_else(|| {
                    // Not accepted yet: the row has no inode, and the listener's owners will take it.
                    (leads == Leads::Upstream)
                        .then(|| listener(table, socket.remote))
                        .flatten()
                });
            match end {
                Some(inode) if held.contains(&inode) => direction.within += 1,
                Some(inode) => _ = wanted.insert(inode, leads),
                None => direction.elsewhere += 1,
            }
        }
    }
    wanted
}

fn listener(table: &[Socket], at: SocketAddr) -> Option<u64> {
    let matches = |socket: &&Socket| {
        socket.state == State::Listening
            && socket.local.port() == at.port()
            && at.ip().is_loopback()
            && (socket.local.ip().is_unspecified() || socket.local.ip() == at.ip())
    };
    table.iter().find(matches).map(|socket| socket.inode)
}

/// One process of each network namespace, the targets' namespaces first.
fn namespaces(roots: &Roots, targets: &[u32], all: &[u32]) -> Vec<u32> {
    let mut seen = BTreeMap::new();
    let mut representatives = Vec::new();
    for &pid in targets.iter().chain(all) {
        let Ok(namespace) = std::fs::read_link(roots.proc.join(format!("{pid}/ns/net"))) else {
            continue;
        };
        if seen.insert(namespace, pid).is_none() {
            representatives.push(pid);
        }
    }
    representatives
}

fn table(roots: &Roots, pid: u32) -> Vec<Socket> {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|file| roots.proc_file(&format!("{pid}/net/{file}")).ok())
        .flat_map(|bytes| sockets::parse(&bytes))
        .collect()
}

/// Reads links of /proc/PID/fd and counts what that took.
struct Links {
    read: usize,
    denied: usize,
}

impl Links {
    fn inodes(&mut self, roots: &Roots, pid: u32) -> Vec<u64> {
        let entries = match std::fs::read_dir(roots.proc.join(format!("{pid}/fd"))) {
            Ok(entries) => entries,
            Err(error) => {
                self.denied += usize::from(error.kind() == std::io::ErrorKind::PermissionDenied);
                return Vec::new();
            }
        };
        let room = MOST_LINKS.saturating_sub(self.read) + 1;
        let links: Vec<_> = entries.flatten().take(room).collect();
        self.read += links.len();
        links
            .iter()
            .filter_map(|entry| {
                let link = std::fs::read_link(entry.path()).ok()?;
                sockets::inode_of_link(link.as_os_str().as_encoded_bytes())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Leads, other_ends};
    use crate::sockets::{Socket, State};
    use std::collections::HashSet;

    fn socket(local: &str, remote: &str, state: State, inode: u64) -> Socket {
        Socket {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state,
            inode,
        }
    }

    #[test]
    fn what_arrives_is_load_and_what_is_opened_is_upstream() {
        let table = vec![
            socket("0.0.0.0:80", "0.0.0.0:0", State::Listening, 1),
            socket("127.0.0.1:80", "127.0.0.1:5000", State::Connected, 2),
            socket("127.0.0.1:5000", "127.0.0.1:80", State::Connected, 3),
            socket("127.0.0.1:6000", "127.0.0.1:8081", State::Connected, 4),
            socket("127.0.0.1:8081", "127.0.0.1:6000", State::Connected, 5),
            // Waiting to be accepted: the mirrored row has no inode.
            socket("127.0.0.1:6001", "127.0.0.1:8082", State::Connected, 6),
            socket("127.0.0.1:8082", "127.0.0.1:6001", State::Connected, 0),
            socket("127.0.0.1:8082", "0.0.0.0:0", State::Listening, 7),
            socket("10.0.0.1:80", "10.0.0.9:1", State::Connected, 8),
            // The gateway calls itself.
            socket("127.0.0.1:7000", "127.0.0.1:80", State::Connected, 9),
            socket("127.0.0.1:80", "127.0.0.1:7000", State::Connected, 10),
        ];
        let mut found = Found::default();
        let wanted = other_ends(&[table], &HashSet::from([1, 2, 4, 6, 8, 9, 10]), &mut found);
        assert_eq!(wanted.len(), 3);
        assert_eq!(wanted.get(&3), Some(&Leads::Load));
        assert_eq!(wanted.get(&5), Some(&Leads::Upstream));
        assert_eq!(wanted.get(&7), Some(&Leads::Upstream));
        assert_eq!(
            (
                found.load.connections,
                found.load.elsewhere,
                found.load.within
            ),
            (3, 1, 1)
        );
        assert_eq!(
            (
                found.upstream.connections,
                found.upstream.elsewhere,
                found.upstream.within
            ),
            (3, 0, 1)
        );
    }
}
