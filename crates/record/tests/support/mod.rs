//! Programs whose answer is known, recordings of them, and questions about the recordings.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod program;
pub mod recording;
