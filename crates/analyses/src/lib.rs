//! throughline-analyses
