//! throughline-report
