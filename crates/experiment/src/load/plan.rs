//! What load to generate, checked before anything is opened.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most connections one generator opens: it needs a descriptor for each, and 1,024 is the usual
/// limit of a process.
const CONNECTIONS_MAX: u32 = 1000;
/// Above a million a second the schedule has less than a microsecond between requests, which one
/// thread cannot serve (a raw loop reaches about 150,000).
const RATE_MAX: f64 = 1_000_000.0;
/// A path or header longer than this is refused; nginx refuses request lines above 8 KiB.
const FIELD_BYTES_MAX: usize = 4096;

/// What to send, where, how fast and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// Where the connections go.
    pub address: SocketAddr,
    /// Request target, beginning with `/`.
    pub path: String,
    /// Value of the `Host` header.
    pub host: String,
    /// Further request headers, in order.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Connections kept open, 1 to 1,000.
    pub connections: u32,
    /// When the next request is sent.
    pub pace: Pace,
    /// Requests answered within this time after the start are sent and checked but not counted.
    #[serde(default)]
    pub warm_up: Duration,
    /// How long to count after the warm-up; without it the load runs until the stop flag is set.
    pub duration: Option<Duration>,
    /// What a right response looks like.
    pub expect: Expectation,
    /// The CPU to pin the generating thread to.
    pub cpu: Option<usize>,
}

/// When the next request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As soon as the connection's last response is complete.
    Closed,
    /// At evenly spaced times, this many a second over all connections. A request whose time has
    /// come while every connection is busy waits, and that wait is part of its latency.
    Rate(f64),
}

/// What a right response looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The status code that is not an error.
    pub status: u16,
    /// The body, byte for byte; without it any body is right.
    pub body: Option<String>,
}

/// What is wrong with a [`LoadPlan`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No connections, or too many.
    #[error("{0} connections: between 1 and {CONNECTIONS_MAX} are possible")]
    Connections(u32),
    /// A rate that is no positive number, or that no thread can serve.
    #[error("a rate of {0} requests/s: above 0 and at most {RATE_MAX} are possible")]
    Rate(f64),
    /// A path or header that would break the request apart.
    #[error(
        "the {field} holds a control character, a space where none may be, or over {FIELD_BYTES_MAX} bytes"
    )]
    Field {
        /// Which part of the request.
        field: &'static str,
    },
}

impl LoadPlan {
    /// Checks every bound of the plan.
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            return Err(PlanError::Connections(self.connections));
        }
        if let Pace::Rate(rate) = self.pace
            && !(rate > 0.0 && rate <= RATE_MAX)
        {
            return Err(PlanError::Rate(rate));
        }
        check_field("path", &self.path, |byte| byte > b' ')?;
        if !self.path.starts_with('/') {
            return Err(PlanError::Field { field: "path" });
        }
        check_field("host", &self.host, |byte| byte > b' ')?;
        for (name, value) in &self.headers {
            check_field("header name", name, |byte| byte > b' ' && byte != b':')?;
            check_field("header value", value, |byte| byte >= b' ' || byte == b'\t')?;
        }
        Ok(())
    }

    /// The request as it goes over the wire.
    pub(crate) fn request_bytes(&self) -> Vec<u8> {
        let mut text = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", self.path, self.host);
        for (name, value) in &self.headers {
            text.push_str(name);
            text.push_str(": ");
            text.push_str(value);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

fn check_field(
    field: &'static str,
    text: &str,
    allowed: impl Fn(u8) -> bool,
) -> Result<(), PlanError> {
    let sound = !text.is_empty()
        && text.len() <= FIELD_BYTES_MAX
        && text.bytes().all(|byte| allowed(byte) && byte != 0x7f);
    if sound {
        Ok(())
    } else {
        Err(PlanError::Field { field })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LoadPlan {
        LoadPlan {
            address: SocketAddr::from(([127, 0, 0, 1], 80)),
            path: "/".into(),
            host: "localhost".into(),
            headers: vec![("X-Token".into(), "a b".into())],
            connections: 1,
            pace: Pace::Closed,
            warm_up: Duration::ZERO,
            duration: None,
            expect: Expectation {
                status: 200,
                body: None,
            },
            cpu: None,
        }
    }

    #[test]
    fn the_request_is_what_rfc_9112_describes() {
        assert_eq!(
            plan().request_bytes(),
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Token: a b\r\n\r\n"
        );
    }

    #[test]
    fn a_header_cannot_smuggle_a_second_request() {
        let mut smuggling = plan();
        smuggling.headers = vec![("A".into(), "b\r\n\r\nGET /x HTTP/1.1".into())];
        assert_eq!(
            smuggling.validate(),
            Err(PlanError::Field {
                field: "header value"
            })
        );
        smuggling.headers.clear();
        smuggling.path = "/ HTTP/1.1\r\nX:".into();
        assert_eq!(
            smuggling.validate(),
            Err(PlanError::Field { field: "path" })
        );
    }

    #[test]
    fn bounds_are_refused_not_clamped() {
        for connections in [0, 1001] {
            let refused = LoadPlan {
                connections,
                ..plan()
            };
            assert_eq!(refused.validate(), Err(PlanError::Connections(connections)));
        }
        for rate in [0.0, -1.0, 1e7, f64::INFINITY] {
            let refused = LoadPlan {
                pace: Pace::Rate(rate),
                ..plan()
            };
            assert_eq!(refused.validate(), Err(PlanError::Rate(rate)));
        }
        let refused = LoadPlan {
            pace: Pace::Rate(f64::NAN),
            ..plan()
        };
        assert!(matches!(refused.validate(), Err(PlanError::Rate(_))));
    }

    #[test]
    fn a_plan_survives_json() {
        let text = serde_json::to_string(&plan()).unwrap();
        assert_eq!(serde_json::from_str::<LoadPlan>(&text).unwrap(), plan());
    }
}
