//! A bounded HTTP/1.1 load generator on one thread.
//!
//! It keeps a fixed number of connections open to one address and sends the same request over them,
//! either in a *closed loop* (each connection sends its next request when the last response is
//! complete) or at a *fixed rate* (requests have intended times, and latency counts from those). The
//! status and the body of every response are compared with what the plan expects.
//!
//! What its figures do not say: the latency of a closed loop at saturation is the queue that the
//! generator itself makes, so capacity and latency need two runs; and on loopback a part of the
//! network's work is billed to whichever side sends.

mod connection;
mod engine;
mod plan;
mod report;
mod response;
mod serve;

pub use engine::run;
pub use plan::{Expectation, LoadPlan, Pace, PlanError};
pub use report::{Latency, LoadErrors, LoadResult};
pub use serve::{ServeError, ServeMessage, serve};

/// Why a load could not be generated at all. Faults of single requests are counted in
/// [`LoadErrors`] instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan asks for something that is out of bounds.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Not one connection could be opened.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where the load was to go.
        address: std::net::SocketAddr,
        /// What the last attempt met.
        source: std::io::Error,
    },
    /// The kernel refused something that the generator itself needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}
