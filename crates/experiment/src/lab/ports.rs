//! Free ports on 127.0.0.1.

use std::net::TcpListener;

use super::LabError;

/// Where the search begins unless the caller says otherwise.
pub(super) const PORT_FIRST: u16 = 18080;
/// How many ports are tried.
const PORT_SPAN: u16 = 400;

/// The first `count` ports from `from` that nobody listens on. Somebody else may take one before
/// nginx does: then nginx says so and the caller looks again.
pub(super) fn find_free(from: u16, count: usize) -> Result<Vec<u16>, LabError> {
    let to = from.saturating_add(PORT_SPAN);
    let free: Vec<u16> = (from..=to)
        .filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .take(count)
        .collect();
    if free.len() == count {
        Ok(free)
    } else {
        Err(LabError::NoFreePort { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_offered() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let found = find_free(port, 1).unwrap();
        assert!(found[0] > port);
    }
}
