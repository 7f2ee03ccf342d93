//! Lists the LuaJIT VMs of a process: `cargo run -p throughline-target --example vms -- PID`.

use std::error::Error;
use std::io::Write;

use throughline_target::{LiveProcess, find_vms, interpreter_range, parse_maps};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: vms PID")?.parse()?;
    let mut out = std::io::stdout().lock();
    let process = LiveProcess::open(pid)?;
    let maps = parse_maps(&process.maps()?);
    let started = std::time::Instant::now();
    let scan = find_vms(&process, &maps.mappings)?;
    writeln!(
        out,
        "{} bytes in {:?}, {} skipped",
        scan.bytes_scanned,
        started.elapsed(),
        scan.bytes_skipped
    )?;
    for (address, reject) in &scan.rejected {
        writeln!(out, "{address:#x}: refused: {reject}")?;
    }
    for vm in &scan.vms {
        writeln!(out, "{:#x}: {}", vm.global_state, vm.layout.name)?;
        let Some(path) = maps
            .find(vm.first_handler)
            .and_then(|mapping| mapping.path_lossy())
        else {
            continue;
        };
        let elf = std::fs::read(format!("/proc/{pid}/root{path}"))?;
        writeln!(
            out,
            "  interpreter in {path}: {:x?}",
            interpreter_range(&elf)
        )?;
    }
    Ok(())
}
