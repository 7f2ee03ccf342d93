//! throughline
fn main() {}
