//! What a load did, in figures.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a load did. Warm-up requests are in none of the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Right responses.
    pub requests: u64,
    /// Requests without a right response, by what was wrong.
    pub errors: LoadErrors,
    /// Seconds from the end of the warm-up to the last response.
    pub seconds: f64,
    /// `requests / seconds`; 0 when nothing was answered.
    pub req_per_s: f64,
    /// CPU time of the generating thread in the same window, microseconds.
    pub generator_cpu_us: f64,
    /// Latency of right responses.
    pub latency: Latency,
    /// At a fixed rate: requests whose time came and that were never sent, because every connection
    /// was busy until the end. Always 0 in a closed loop.
    pub unsent: u64,
}

/// Faulty requests by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadErrors {
    /// Another status code than expected.
    pub status: u64,
    /// The right status with another body.
    pub body: u64,
    /// Bytes that are no HTTP/1.x response, or a response over the size limit.
    pub protocol: u64,
    /// The connection broke, or could not be opened again.
    pub connection: u64,
    /// No complete response within the time limit.
    pub timeout: u64,
}

impl LoadErrors {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.status + self.body + self.protocol + self.connection + self.timeout
    }
}

/// Latency in microseconds: in a closed loop from sending, at a fixed rate from the intended time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// Latencies of one run, at three significant digits from 1 us to 1 min; longer ones count as 1 min.
#[derive(Debug)]
pub(crate) struct LatencyHistogram(Histogram<u64>);

const LATENCY_MAX: Duration = Duration::from_secs(60);

impl LatencyHistogram {
    /// `None` only if the bounds were not representable, which they are.
    pub(crate) fn new() -> Option<Self> {
        let highest_ns = u64::try_from(LATENCY_MAX.as_nanos()).ok()?;
        Histogram::new_with_bounds(1000, highest_ns, 3)
            .ok()
            .map(Self)
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    pub(crate) fn summary(&self) -> Latency {
        #[expect(clippy::cast_precision_loss, reason = "under 2^53: at most 6e10 ns")]
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        #[expect(clippy::cast_precision_loss, reason = "under 2^53: at most 6e10 ns")]
        let max_us = self.0.max() as f64 / 1000.0;
        Latency {
            mean_us: self.0.mean() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_one_to_a_hundred_milliseconds_are_what_counting_gives() {
        let mut histogram = LatencyHistogram::new().unwrap();
        for milliseconds in 1..=100 {
            histogram.record(Duration::from_millis(milliseconds));
        }
        let latency = histogram.summary();
        for (reading, expected_us) in [
            (latency.mean_us, 50_500.0),
            (latency.p50_us, 50_000.0),
            (latency.p99_us, 99_000.0),
            (latency.max_us, 100_000.0),
        ] {
            assert!(
                (reading / expected_us - 1.0).abs() < 0.002,
                "{reading} for {expected_us}"
            );
        }
    }

    #[test]
    fn an_absurd_latency_is_counted_at_the_upper_bound() {
        let mut histogram = LatencyHistogram::new().unwrap();
        histogram.record(Duration::MAX);
        assert!((histogram.summary().max_us / 60e6 - 1.0).abs() < 0.002);
    }

    #[test]
    fn the_total_counts_every_kind_of_error_once() {
        let errors = LoadErrors {
            status: 1,
            body: 10,
            protocol: 100,
            connection: 1000,
            timeout: 10_000,
        };
        assert_eq!(errors.total(), 11_111);
    }
}
