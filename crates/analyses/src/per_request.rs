//! Cost per request: what a sample is worth in time, divided by the requests that were counted beside the samples.
//!
//! A sample of a running thread stands for one period of the sampling clock, which runs with the thread's CPU time. Samples that were
//! lost count for nothing, so that the cost is too small by their share, which the ledger tells.

use std::fmt::Write as _;

use serde::Serialize;
use throughline_profile::{Capture, RequestCount};

use crate::shown::shown;

const US_PER_SECOND: f64 = 1e6;

/// The requests of a capture, as a denominator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// How many were finished during the recording, by all targets together.
    pub requests: Option<u64>,
    /// Why there is no number.
    pub requests_reason: Option<String>,
    /// What counted them; left out when nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_source: Option<String>,
}

impl Requests {
    pub(crate) fn of(capture: &Capture) -> Self {
        let (requests, requests_reason, requests_source) = match &capture.requests {
            RequestCount::Counted { count, source } => (Some(*count), None, Some(source.clone())),
            RequestCount::NotCounted { reason } => (None, Some(reason.clone()), None),
        };
        Self {
            requests,
            requests_reason,
            requests_source,
        }
    }
}

/// What one on-CPU sample costs each request, in us, or why nobody can say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PerRequest(Result<f64, String>);

impl PerRequest {
    /// For samples of all processes (`pid` is `None`) or of one alone, of which the requests are not known.
    pub(crate) fn of(capture: &Capture, pid: Option<u32>) -> Self {
        let others = capture.targets.iter().any(|target| Some(target.pid) != pid);
        Self(match &capture.requests {
            RequestCount::NotCounted { reason } => Err(reason.clone()),
            RequestCount::Counted { count: 0, .. } => {
                Err("no request was finished during the recording".to_owned())
            }
            RequestCount::Counted { .. } if pid.is_some() && others => {
                Err("requests were counted for all processes together".to_owned())
            }
            RequestCount::Counted { .. } if capture.rate_hz == 0 => {
                Err("the capture has no sampling rate".to_owned())
            }
            RequestCount::Counted { count, .. } => {
                Ok(US_PER_SECOND / f64::from(capture.rate_hz) / *count as f64)
            }
        })
    }

    /// Where no such cost is asked for.
    pub(crate) fn none(reason: &str) -> Self {
        Self(Err(reason.to_owned()))
    }

    /// The cost of so many samples in us per request, or the reason for its absence.
    pub(crate) fn cost(&self, samples: u64) -> (Option<f64>, Option<String>) {
        match &self.0 {
            Ok(us) => (Some(us * samples as f64), None),
            Err(reason) => (None, Some(reason.clone())),
        }
    }
}

/// The denominator of all costs per request, or why there is none.
pub(crate) fn line(out: &mut String, of: &Requests) {
    let _ = match (of.requests, &of.requests_source, &of.requests_reason) {
        (Some(count), Some(source), _) => {
            writeln!(out, "\nRequests: {count}, counted by {}", shown(source))
        }
        (_, _, reason) => {
            let reason = reason.as_deref().unwrap_or("not known");
            writeln!(out, "\nRequests: not counted ({})", shown(reason))
        }
    };
}

/// `5.86 us`, or nothing.
pub(crate) fn us(cost: Option<f64>) -> String {
    cost.map_or_else(|| "-".to_owned(), |us| format!("{us:.2} us"))
}
