//! How long a look at the JIT compiler's state of a live process takes: `looks PID [COUNT]`.

use std::io::Write;
use std::time::Instant;

use throughline_target::{LiveProcess, MemoryError, census, find_vms, parse_maps};

fn main() -> Result<(), MemoryError> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let pid = arguments.next().unwrap_or_else(std::process::id);
    let count = arguments.next().unwrap_or(10);
    let process = LiveProcess::open(pid)?;
    let mut out = std::io::stdout().lock();
    for _ in 0..count {
        let maps = parse_maps(&process.maps()?);
        for vm in find_vms(&process, &maps.mappings)?.vms {
            let begun = Instant::now();
            let census = census(&process, &maps.mappings, &vm)?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            // A closed pipe ends nothing worth telling.
            let _ = writeln!(
                out,
                "{ms:.1} ms: {} functions of {} objects, {} traces, {} starts, changed: {:?}",
                census.heap.prototypes,
                census.heap.objects,
                census.traces.len(),
                census.starts.len(),
                census.changed
            );
        }
    }
    Ok(())
}
