//! throughline-target
