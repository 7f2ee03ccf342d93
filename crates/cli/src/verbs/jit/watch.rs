//! Watching the compilers of some processes for a while.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use throughline_analyses::jit::{Events, PolledEvent, Start};
use throughline_host::Process;
use throughline_record::FunctionNames;
use throughline_target::{
    ABORTS_TO_GIVE_UP, FlushCause, JitEvent, JitWatch, LiveProcess, Place, Vm, find_vms,
    jit_parameters, jit_pulse, parse_maps, place_of, prototype, trace,
};

use super::document;
use crate::output::{ProgressLine, Voice};
use crate::signals::Interrupts;

/// Events that are listed one by one; more are counted.
const LISTED: usize = 2000;
/// Starts that an explanation names.
const NAMED: usize = 5;

/// Watches until `window` is over or a signal comes. Processes that cannot be read are left out: the look after the watch
/// says why.
pub fn watch(
    processes: &[Process],
    window: Duration,
    interval: Duration,
    voice: Voice,
    names: &mut FunctionNames,
) -> Result<Events> {
    let interrupts = Interrupts::watch()?;
    let line = ProgressLine::new(voice, Some(window));
    let begun = Instant::now();
    let mut watched: Vec<Watched> = processes
        .iter()
        .filter_map(|process| open(process.pid))
        .flatten()
        .collect();
    let mut events = Events {
        source: "polled".to_owned(),
        bound: "lower".to_owned(),
        ..Events::default()
    };
    while begun.elapsed() < window && !interrupts.came() {
        for vm in &mut watched {
            vm.poll(begun.elapsed(), &mut events, names);
        }
        events.looks += 1;
        line.show(begun.elapsed(), "watching");
        sleep(interval.min(window.saturating_sub(begun.elapsed())));
    }
    line.clear();
    events.seconds = begun.elapsed().as_secs_f64();
    events.start = events.stop.saturating_add(events.abort);
    events.explanations = explanations(&watched, &events);
    Ok(events)
}

fn open(pid: u32) -> Option<Vec<Watched>> {
    let process = LiveProcess::open(pid).ok()?;
    let maps = parse_maps(&process.maps().ok()?);
    let vms = find_vms(&process, &maps.mappings).ok()?.vms;
    let open = |vm: Vm| {
        let process = LiveProcess::open(pid).ok()?;
        let first = jit_pulse(&process, &vm).ok()?;
        let parameters = jit_parameters(&process, &vm).ok()?;
        Some(Watched {
            pid,
            watch: JitWatch::new(&vm, parameters, first),
            process,
            vm,
            places: BTreeMap::new(),
            ended: false,
        })
    };
    Some(vms.into_iter().filter_map(open).collect())
}

/// One VM.
struct Watched {
    pid: u32,
    process: LiveProcess,
    vm: Vm,
    watch: JitWatch,
    /// Starts by address, named when first seen: they may be gone later.
    places: BTreeMap<u64, Start>,
    ended: bool,
}

impl Watched {
    fn poll(&mut self, at: Duration, events: &mut Events, names: &mut FunctionNames) {
        if self.ended {
            return;
        }
        let pulse = match jit_pulse(&self.process, &self.vm) {
            Ok(pulse) => pulse,
            Err(error) => {
                self.ended = error.is_final();
                return;
            }
        };
        for event in self.watch.see(pulse) {
            let mut row = PolledEvent {
                at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                pid: self.pid,
                state: format!("{:#x}", self.vm.global_state),
                count: 1,
                ..PolledEvent::default()
            };
            match event {
                JitEvent::Stop { number } => {
                    events.stop += 1;
                    "stop".clone_into(&mut row.kind);
                    row.trace = Some(number);
                    row.start = self.trace_start(number, names);
                }
                JitEvent::Abort { pc, count, reason } => {
                    events.abort += u64::from(count);
                    "abort".clone_into(&mut row.kind);
                    row.count = u64::from(count);
                    row.start = Some(self.start(pc, names));
                    row.reason = Some(document::reason(reason));
                }
                JitEvent::Blacklist { pc, reason } => {
                    "blacklist".clone_into(&mut row.kind);
                    row.start = Some(self.start(pc, names));
                    row.reason = Some(document::reason(reason));
                }
                JitEvent::Flush { cause } => {
                    events.flush += 1;
                    "flush".clone_into(&mut row.kind);
                    row.reason = Some(flush_reason(cause));
                }
            }
            if events.list.len() < LISTED {
                events.list.push(row);
            } else {
                events.list_omitted += 1;
            }
        }
    }

    fn trace_start(&mut self, number: u32, names: &mut FunctionNames) -> Option<Start> {
        let trace = trace(&self.process, &self.vm, number).ok()?;
        Some(self.start(trace.start_pc, names))
    }

    fn start(&mut self, pc: u64, names: &mut FunctionNames) -> Start {
        if let Some(known) = self.places.get(&pc) {
            return known.clone();
        }
        let place = place_of(&self.process, &self.vm, pc).unwrap_or(Place {
            bytecode_start: 0,
            pc,
            op: "?",
        });
        let found = prototype(&self.process, &self.vm.layout, place.bytecode_start).ok();
        let start = document::start(&place, found.as_ref(), self.pid, names);
        self.places.insert(pc, start.clone());
        start
    }
}

fn flush_reason(cause: FlushCause) -> String {
    match cause {
        FlushCause::MachineCodeFull { allocated, max } => {
            format!("machine-code area full ({allocated} of {max} bytes before)")
        }
        FlushCause::TraceTableFull { traces, max } => {
            format!("trace table full ({traces} of {max} traces before)")
        }
        FlushCause::Asked => {
            "flushed (jit.flush, or a cache that filled up between two looks)".to_owned()
        }
    }
}

/// What the events mean.
fn explanations(watched: &[Watched], events: &Events) -> Vec<String> {
    let mut out = Vec::new();
    for vm in watched {
        let mut retried: Vec<_> = vm
            .watch
            .starts()
            .iter()
            .filter(|(_, start)| start.aborts > ABORTS_TO_GIVE_UP)
            .collect();
        retried.sort_by_key(|(_, start)| std::cmp::Reverse(start.aborts));
        for (pc, start) in retried.into_iter().take(NAMED) {
            let place = vm
                .places
                .get(pc)
                .map_or_else(|| format!("{pc:#x}"), Start::label);
            out.push(format!(
                "{} aborts at {place}, more than {ABORTS_TO_GIVE_UP}: its penalty slot was lost {} times (LuaJIT keeps 64, which \
                 other starts take in turn, and a flush empties), so it is counted anew and tried for ever",
                start.aborts, start.restarts
            ));
        }
    }
    let caused = |what: &str| {
        let flushes = events.list.iter().filter(|event| event.kind == "flush");
        flushes
            .filter(|event| {
                event
                    .reason
                    .as_ref()
                    .is_some_and(|reason| reason.starts_with(what))
            })
            .count()
    };
    for (what, parameter) in [
        ("machine-code area full", "maxmcode"),
        ("trace table full", "maxtrace"),
    ] {
        let count = caused(what);
        if count > 0 {
            out.push(format!(
                "{what}: {count} times all traces were thrown away and compiled again; {parameter} is too small for this program, \
                 or it compiles ever new code"
            ));
        }
    }
    let asked = caused("flushed");
    if asked > 0 {
        out.push(format!(
            "flushed: {asked} times all traces were thrown away though no cache was full"
        ));
    }
    let ended = watched.iter().filter(|vm| vm.ended).count();
    if ended > 0 {
        out.push(format!("{ended} VMs ended while they were watched"));
    }
    out
}
