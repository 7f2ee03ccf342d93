//! One module for each question: from what was recorded or observed to evidence.
//!
//! The caller reads the data; nothing here does I/O or reads a clock, so each answer can be had again from the same
//! data. What an analysis cannot show is part of its answer.

pub mod check;
pub mod rank;
