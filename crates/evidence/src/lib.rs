//! throughline-evidence
