//! Intervals of log-ratios, one a block.

use anyhow::{Context, Result};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean of log-ratios with its 95 % interval from Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Blocks.
    pub count: usize,
    /// Mean of the logarithms.
    pub mean: f64,
    /// Half the width of the interval, of the logarithms.
    pub half_width: f64,
    /// Standard deviation of one block.
    pub deviation: f64,
}

impl Estimate {
    /// # Errors
    /// Fewer than two values say nothing about their spread.
    pub fn of(values: &[f64]) -> Result<Self> {
        let count = values.len();
        anyhow::ensure!(
            count >= 2,
            "an interval needs two blocks, there are {count}"
        );
        let n = count as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (n - 1.0)).sqrt();
        let t = StudentsT::new(0.0, 1.0, n - 1.0)
            .context("Student's t for this many blocks")?
            .inverse_cdf(0.975);
        Ok(Self {
            count,
            mean,
            half_width: t * deviation / n.sqrt(),
            deviation,
        })
    }

    /// The change in percent that a logarithm stands for.
    fn percent(log_ratio: f64) -> f64 {
        100.0 * log_ratio.exp_m1()
    }

    pub fn mean_percent(&self) -> f64 {
        Self::percent(self.mean)
    }

    pub fn low_percent(&self) -> f64 {
        Self::percent(self.mean - self.half_width)
    }

    pub fn high_percent(&self) -> f64 {
        Self::percent(self.mean + self.half_width)
    }

    /// Half the width of the interval in percent, for an estimate near 0.
    pub fn half_width_percent(&self) -> f64 {
        (self.high_percent() - self.low_percent()) / 2.0
    }

    /// Whether no change lies inside the interval.
    pub fn covers_none(&self) -> bool {
        self.mean.abs() <= self.half_width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_one_from_the_table_of_students_t() {
        // Five values, mean 3, deviation sqrt(2.5); t(4, 0.975) is 2.776 in every table.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("enough values");
        assert!((estimate.mean - 3.0).abs() < 1e-12);
        assert!((estimate.half_width - 2.776 * (2.5f64 / 5.0).sqrt()).abs() < 1e-3);
        assert!(!estimate.covers_none());
    }

    #[test]
    fn one_block_has_no_interval() {
        assert!(Estimate::of(&[0.1]).is_err());
    }

    #[test]
    fn a_log_ratio_is_shown_as_the_change_it_stands_for() {
        let estimate = Estimate {
            count: 2,
            mean: 1.015f64.ln(),
            half_width: 0.0,
            deviation: 0.0,
        };
        assert!((estimate.mean_percent() - 1.5).abs() < 1e-9);
    }
}
