//! throughline-record
