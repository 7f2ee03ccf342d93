//! throughline-units
