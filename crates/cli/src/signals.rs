//! SIGINT and SIGTERM: the first ends the work in good order, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// Watches for signals for as long as the process lives.
pub struct Interrupts {
    stop: Arc<AtomicBool>,
    arrivals: SignalsInfo<WithOrigin>,
}

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub signal: i32,
    /// The terminal sent it, and it sends to the whole group of processes in the foreground.
    pub from_terminal: bool,
}

impl Interrupts {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn watch() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let register = || -> std::io::Result<SignalsInfo<WithOrigin>> {
            for signal in [SIGINT, SIGTERM] {
                // In this order: the first signal finds the flag down, raises it, and nothing else happens.
                flag::register_conditional_default(signal, Arc::clone(&stop))?;
                flag::register(signal, Arc::clone(&stop))?;
            }
            SignalsInfo::new([SIGINT, SIGTERM])
        };
        let arrivals = register().context("cannot handle SIGINT and SIGTERM")?;
        Ok(Self { stop, arrivals })
    }

    /// Whether one has come.
    pub fn came(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A flag that is up once one has come.
    pub fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Ends the work as a signal would.
    pub fn raise(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The signals since the last call.
    pub fn arrivals(&mut self) -> impl Iterator<Item = Arrival> {
        self.arrivals.pending().map(|origin| Arrival {
            signal: origin.signal,
            from_terminal: matches!(origin.cause, Cause::Kernel),
        })
    }
}
