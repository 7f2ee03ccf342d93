//! Quantities as types, so that a nanosecond is never added to a byte.
//!
//! Inside the program a quantity has a type from here; outside (JSON, SQL, text) its unit is the
//! last part of its name (`blocked_ns`). Sums stop at the largest value and differences at zero; the caller must not
//! take the latter for a measured zero. Nothing here does I/O or reads a clock.
//!
//! ```
//! use throughline_units::Nanos;
//! assert_eq!((Nanos(3) + Nanos(4)).to_string(), "7 ns");
//! ```

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        /// Stops at zero: a counter that went backwards is not a negative amount.
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }
    };
}

quantity! {
    /// Nanoseconds: a duration, or a time since a stated origin.
    Nanos
}
quantity! {
    /// Bytes.
    Bytes
}
quantity! {
    /// A number of samples.
    Samples
}

impl Nanos {
    /// The quantity in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Duration> for Nanos {
    /// Durations beyond 584 years become the longest one.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// Three significant digits and the unit that fits: `1.25 ms`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => (ns, "ns"),
            1_000..1_000_000 => (ns / 1e3, "us"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let decimals = match value {
            v if v >= 100.0 || unit == "ns" => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanos_show_three_significant_digits() {
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(Nanos(1_250_000).to_string(), "1.25 ms");
        assert_eq!(Nanos(68_000_000_000).to_string(), "68.0 s");
    }

    #[test]
    fn a_counter_that_went_backwards_is_zero_not_huge() {
        assert_eq!(Nanos(1) - Nanos(2), Nanos(0));
    }
}
