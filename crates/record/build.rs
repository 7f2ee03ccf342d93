//! Compiles the BPF program and makes its skeleton; the C constants come from the crate throughline-wire.

use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("wire_constants.h"), throughline_wire::c_header())?;
    std::fs::write(
        out.join("wire_assertions.h"),
        throughline_wire::c_assertions(),
    )?;
    let source = Path::new("src/bpf/throughline.bpf.c");
    SkeletonBuilder::new()
        .source(source)
        .clang_args([
            format!("-I{}", out.display()),
            // Debian keeps the asm/ headers apart per architecture.
            "-I/usr/include/x86_64-linux-gnu".to_owned(),
            "-D__TARGET_ARCH_x86".to_owned(),
            "-Wall".to_owned(),
            "-Wno-unused-function".to_owned(),
        ])
        .build_and_generate(out.join("throughline.skel.rs"))
        .map_err(|error| {
            format!("the BPF program did not compile (is clang installed?): {error:?}")
        })?;
    println!("cargo:rerun-if-changed=src/bpf");
    Ok(())
}
