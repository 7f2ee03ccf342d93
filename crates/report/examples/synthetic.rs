//! Writes a page of a made-up profile, to look at and to measure.
//!
//! `synthetic gateway OUT.html` shows the tests' fixture, `synthetic NODES OUT.html` a random tree of
//! that many nodes (always the same one), with the shapes of a gateway: deep, with recursion and a long tail.
//! Then `node web/test/bench.mjs OUT.html` measures painting, zoom, search and inversion.

#![allow(clippy::disallowed_methods, reason = "only the library is pure")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::time::Instant;

use throughline_report::{FlamePlan, flame_html};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(out)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: synthetic gateway|NODES OUT.html");
        return;
    };
    let profile = what
        .parse()
        .map_or_else(|_| fixture::gateway(), fixture::random);
    let began = Instant::now();
    let html = flame_html(&profile, &FlamePlan::default());
    eprintln!(
        "{} stacks, {} bytes, {:?}",
        profile.stacks.len(),
        html.len(),
        began.elapsed()
    );
    if let Err(error) = std::fs::write(&out, html) {
        eprintln!("{out}: {error}");
    }
}
