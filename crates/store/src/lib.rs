//! throughline-store
