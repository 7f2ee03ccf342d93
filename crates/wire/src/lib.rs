//! throughline-wire
