//! throughline-experiment
