//! throughline-symbols
