//! Looking at a process until two readings of what must not change agree.

use std::thread::sleep;
use std::time::{Duration, Instant};

use throughline_target::{Census, LiveProcess, MemoryError, Vm, census, find_vms, parse_maps};

/// Waits before each look after the first. A compiler that warms up changes its state many times a second, and the garbage
/// collector sweeps for milliseconds; half a second of looks finds a quiet moment of either.
const PAUSES_MS: [u64; 11] = [1, 1, 2, 3, 5, 10, 20, 50, 100, 150, 150];

/// What a process has.
pub struct LookedProcess {
    pub vms: Vec<Looked>,
    /// What looked like a VM, and why it was refused; or that there is none.
    pub rejected: Vec<String>,
}

/// One VM, and its state.
pub struct Looked {
    pub vm: Vm,
    pub state: Result<State, MemoryError>,
}

/// A census and what it cost.
pub struct State {
    pub census: Census,
    /// Of the one look that is shown.
    pub length: Duration,
}

/// Finds the VMs of a process and looks at each.
pub fn look(pid: u32) -> Result<LookedProcess, MemoryError> {
    let process = LiveProcess::open(pid)?;
    let maps = parse_maps(&process.maps()?);
    let scan = find_vms(&process, &maps.mappings)?;
    let mut rejected: Vec<String> = scan
        .rejected
        .iter()
        .map(|(thread, reject)| format!("VM with main thread {thread:#x}: {reject}"))
        .collect();
    if scan.vms.is_empty() && rejected.is_empty() {
        rejected.push("no LuaJIT VM in it".to_owned());
    }
    let vms = scan
        .vms
        .into_iter()
        .map(|vm| Looked {
            state: stable(&process, &vm),
            vm,
        })
        .collect();
    Ok(LookedProcess { vms, rejected })
}

/// The first look in which nothing changed, else the one in which least did.
fn stable(process: &LiveProcess, vm: &Vm) -> Result<State, MemoryError> {
    let mut best: Option<State> = None;
    for pause in std::iter::once(0).chain(PAUSES_MS) {
        sleep(Duration::from_millis(pause));
        // Mappings come and go; a look with old ones would read new memory piece by piece.
        let maps = parse_maps(&process.maps()?);
        let begun = Instant::now();
        let census = census(process, &maps.mappings, vm)?;
        let state = State {
            census,
            length: begun.elapsed(),
        };
        let changed = state.census.changed.len();
        if best
            .as_ref()
            .is_none_or(|best| changed < best.census.changed.len())
        {
            best = Some(state);
        }
        if changed == 0 {
            break;
        }
    }
    // The loop has run at least once.
    best.ok_or(MemoryError::Gone)
}
