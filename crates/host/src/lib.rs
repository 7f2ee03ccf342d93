//! throughline-host
