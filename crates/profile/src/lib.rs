//! throughline-profile
