//! The conditions, each from its reading, and what follows for the user when one fails.

use throughline_evidence::{Condition, Holds, Verdict};
use throughline_host::{CoreActivity, Observation, Peers, Tenant, Virtualisation};

use super::{
    FEWEST_SEGMENTS, IDLE_BELOW, INTERRUPTS_AT_MOST, OFF_CPU_AT_MOST, ON_CPU_AT_LEAST,
    PEER_DEMAND_AT_MOST, RETRANSMITS_AT_MOST, RUN_QUEUE_WAIT_AT_MOST, STEAL_AT_MOST, Worker,
    worker,
};

/// Tenants named in a sentence.
const TENANTS_NAMED: usize = 3;
/// A neighbour below this share of the worker's cores explains no wait worth naming.
const LEAST_TENANT_CORES: f64 = 0.01;

/// All conditions, the five that every report has first.
pub(super) fn all(observation: &Observation, worker: &Worker) -> Vec<Condition> {
    vec![
        worker_saturated(worker),
        headroom(
            "upstream_headroom",
            "the upstream",
            observation,
            &observation.upstreams,
        ),
        headroom(
            "load_generator_headroom",
            "the load generator",
            observation,
            &observation.load_generators,
        ),
        run_queue_wait(observation, worker),
        Condition::unknown(
            "error_rate_stable",
            "errors_per_s",
            "no status endpoint given, and no responses were seen",
        ),
        work_arrives(observation, worker),
        steal(observation, worker),
        network_headroom(observation),
        listen_queue(observation),
        interrupt_time(observation, worker),
        memory_headroom(observation),
        environment(observation),
        Condition::unknown(
            "reproducible",
            "windows",
            "one window cannot show it; repeat the check, and compare variants in turns",
        ),
    ]
}

fn compared(
    name: &'static str,
    unit: &'static str,
    reading: f64,
    at_most: f64,
    decisive: bool,
    detail: String,
) -> Condition {
    Condition {
        name,
        holds: if reading <= at_most {
            Holds::Yes
        } else {
            Holds::No
        },
        reading: Some(reading),
        threshold: Some(at_most),
        unit,
        decisive,
        detail,
    }
}

/// Chooses the graph and forbids none, so it is not decisive.
fn worker_saturated(worker: &Worker) -> Condition {
    let reading = worker.cpu_share.max(worker.process_share_of_its_cores);
    Condition {
        name: "worker_saturated",
        holds: if reading >= ON_CPU_AT_LEAST {
            Holds::Yes
        } else {
            Holds::No
        },
        reading: Some(reading),
        threshold: Some(ON_CPU_AT_LEAST),
        unit: "core",
        decisive: false,
        detail: if worker.process_share_of_its_cores > worker.cpu_share {
            format!(
                "all threads of pid {}, of each core they may use",
                worker.pid
            )
        } else {
            format!("CPU of {}", worker.name())
        },
    }
}

/// A peer that is starved of its core has no more headroom than one that uses it, so both count.
fn headroom(name: &'static str, who: &str, observation: &Observation, peers: &Peers) -> Condition {
    let Some(busiest) = worker::busiest_of(observation, &peers.processes) else {
        return Condition::unknown(name, "core", why_no_peer(who, peers));
    };
    let demand = busiest.demand().max(busiest.process_share_of_its_cores);
    let wait = busiest
        .wait_share
        .as_ref()
        .map_or_else(ToString::to_string, |wait| format!("{wait:.3}"));
    let mut detail = format!(
        "{}: {:.3} of a core, run-queue wait {wait}; the reading is both",
        busiest.name(),
        busiest.cpu_share
    );
    if let Some(elsewhere) = peers.connections_elsewhere.filter(|&count| count > 0) {
        detail.push_str(&format!(
            "; {elsewhere} more connections have their other end out of sight"
        ));
    }
    compared(name, "core", demand, PEER_DEMAND_AT_MOST, true, detail)
}

fn why_no_peer(who: &str, peers: &Peers) -> String {
    if !peers.processes.is_empty() {
        return format!("{who} ended in the window");
    }
    let Some(connections) = peers.connections else {
        return format!("no pid was given for {who}");
    };
    let (elsewhere, within) = (
        peers.connections_elsewhere.unwrap_or(0),
        peers.connections_within.unwrap_or(0),
    );
    if elsewhere > 0 {
        format!(
            "{elsewhere} of {connections} connections have their other end out of sight of this machine"
        )
    } else if within > 0 {
        format!("all {within} connections lead to the targets themselves")
    } else if peers.search_limits.is_empty() {
        format!("no TCP connection to {who} was seen; Unix sockets are not followed")
    } else {
        format!(
            "no TCP connection to {who} was seen: {}",
            peers.search_limits.join("; ")
        )
    }
}

/// Takes the verdict away only when the worker wanted a core for more than the off-CPU share: one that is blocked
/// for most of the window is explained by what it blocks on, though it waits for a core now and then.
fn run_queue_wait(observation: &Observation, worker: &Worker) -> Condition {
    match &worker.wait_share {
        Err(absence) => Condition::unknown("run_queue_wait", "window", absence.to_string()),
        Ok(wait) => compared(
            "run_queue_wait",
            "window",
            *wait,
            RUN_QUEUE_WAIT_AT_MOST,
            worker.demand() > OFF_CPU_AT_MOST,
            format!(
                "{}, runnable without a core; {}",
                worker.name(),
                neighbours(observation, worker)
            ),
        ),
    }
}

/// The tenants of the cores the worker was seen on, busiest first, without the worker itself.
pub(super) fn tenants_of(observation: &Observation, worker: &Worker) -> Vec<(Tenant, f64)> {
    let mut tenants: Vec<(Tenant, f64)> = observation
        .tenants
        .iter()
        .map(|tenant| {
            let on_its_cores: f64 = tenant
                .by_core
                .iter()
                .filter_map(|(core, cores)| {
                    let own = worker.cores.get(core)?;
                    // Of the worker's own process, its other threads are the neighbours.
                    Some(if tenant.pid == worker.pid {
                        (cores - own).max(0.0)
                    } else {
                        *cores
                    })
                })
                .sum();
            (tenant.clone(), on_its_cores)
        })
        .filter(|&(_, cores)| cores >= LEAST_TENANT_CORES)
        .collect();
    tenants.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    tenants
}

/// Who else was on the worker's cores, as words.
pub(super) fn neighbours(observation: &Observation, worker: &Worker) -> String {
    let tenants = tenants_of(observation, worker);
    if tenants.is_empty() {
        return "no other process was seen on its cores (short-lived ones are not)".to_owned();
    }
    let named: Vec<String> = tenants
        .iter()
        .take(TENANTS_NAMED)
        .map(|(tenant, cores)| {
            if tenant.pid == worker.pid {
                format!("its own other threads {cores:.2}")
            } else {
                format!("{} (pid {}) {cores:.2}", tenant.comm, tenant.pid)
            }
        })
        .collect();
    format!("also on its cores: {}", named.join(", "))
}

/// Without work there is nothing to explain. A worker below the idle share still counts as having some when a load
/// generator is at work, or clients out of sight are connected, and blocks begin and end.
fn work_arrives(observation: &Observation, worker: &Worker) -> Condition {
    let load = &observation.load_generators;
    let generator = worker::busiest_of(observation, &load.processes)
        .is_some_and(|peer| peer.demand() >= IDLE_BELOW);
    let clients = load.connections_elsewhere.is_some_and(|count| count > 0);
    let moves = worker.switches.is_none_or(|switches| switches > 0);
    let peak = worker
        .peak_share
        .unwrap_or(0.0)
        .max(worker.cpu_share)
        .max(worker.process_cpu_cores);
    let holds = peak >= IDLE_BELOW || ((generator || clients) && moves);
    Condition {
        name: "work_arrives",
        holds: if holds { Holds::Yes } else { Holds::No },
        reading: Some(peak),
        threshold: Some(IDLE_BELOW),
        unit: "core",
        decisive: true,
        detail: format!(
            "largest CPU share between two looks; a busy local load generator was {}seen, clients out of sight {}",
            if generator { "" } else { "not " },
            load.connections_elsewhere
                .map_or_else(|| "not searched".to_owned(), |count| count.to_string()),
        ),
    }
}

/// The activity of the cores the worker was seen on.
fn its_cores<'a>(
    observation: &'a Observation,
    worker: &'a Worker,
) -> impl Iterator<Item = &'a CoreActivity> {
    observation
        .cores
        .iter()
        .flatten()
        .filter(|core| worker.cores.contains_key(&core.core))
}

fn largest_of_its_cores(
    observation: &Observation,
    worker: &Worker,
    share: fn(&CoreActivity) -> f64,
) -> Result<(u32, f64), String> {
    if let Err(absence) = &observation.cores {
        return Err(absence.to_string());
    }
    its_cores(observation, worker)
        .map(|core| (core.core, share(core)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .ok_or_else(|| "the worker was seen on no core".to_owned())
}

fn steal(observation: &Observation, worker: &Worker) -> Condition {
    match largest_of_its_cores(observation, worker, |core| core.steal_share) {
        Err(reason) => Condition::unknown("steal", "core", reason),
        Ok((core, share)) => compared(
            "steal",
            "core",
            share,
            STEAL_AT_MOST,
            worker.demand() > OFF_CPU_AT_MOST,
            format!("core {core}, given to other machines by the hypervisor, as far as it reports"),
        ),
    }
}

fn interrupt_time(observation: &Observation, worker: &Worker) -> Condition {
    match largest_of_its_cores(observation, worker, |core| {
        core.irq_share + core.softirq_share
    }) {
        Err(reason) => Condition::unknown("interrupt_time", "core", reason),
        Ok((core, share)) => compared(
            "interrupt_time",
            "core",
            share,
            INTERRUPTS_AT_MOST,
            false,
            format!("core {core}, hardware and soft interrupts"),
        ),
    }
}

fn network_headroom(observation: &Observation) -> Condition {
    match &observation.network {
        Err(absence) => Condition::unknown("network_headroom", "segment", absence.to_string()),
        Ok(network) if network.segments_sent < FEWEST_SEGMENTS => Condition::unknown(
            "network_headroom",
            "segment",
            format!(
                "{} TCP segments sent, {FEWEST_SEGMENTS} needed",
                network.segments_sent
            ),
        ),
        Ok(network) => compared(
            "network_headroom",
            "segment",
            network.segments_retransmitted as f64 / network.segments_sent as f64,
            RETRANSMITS_AT_MOST,
            true,
            format!(
                "{} of {} TCP segments of the network namespace sent again; {} packets dropped before a protocol saw them",
                network.segments_retransmitted, network.segments_sent, network.backlog_drops
            ),
        ),
    }
}

/// A full accept queue follows from a slow worker as much as it causes lost requests: worth knowing, not decisive.
fn listen_queue(observation: &Observation) -> Condition {
    match &observation.network {
        Err(absence) => Condition::unknown("listen_queue", "connections", absence.to_string()),
        Ok(network) => {
            let lost = network
                .listen_drops
                .max(network.listen_overflows)
                .saturating_add(network.syn_drops);
            compared(
                "listen_queue",
                "connections",
                lost as f64,
                0.0,
                false,
                format!(
                    "{} overflows, {} drops, {} SYNs dropped in the network namespace",
                    network.listen_overflows, network.listen_drops, network.syn_drops
                ),
            )
        }
    }
}

fn memory_headroom(observation: &Observation) -> Condition {
    match &observation.memory {
        Err(absence) => Condition::unknown("memory_headroom", "pages", absence.to_string()),
        Ok(memory) => compared(
            "memory_headroom",
            "pages",
            memory
                .swapped_in_pages
                .saturating_add(memory.swapped_out_pages) as f64,
            0.0,
            false,
            format!(
                "moved to or from swap; {} allocation stalls, {} processes killed for lack of memory",
                memory.allocation_stalls, memory.oom_kills
            ),
        ),
    }
}

/// A graph of a desktop's virtual machine shows where its time goes; a ratio measured there holds for it alone.
fn environment(observation: &Observation) -> Condition {
    let desktop = observation.machine.virtualisation == Virtualisation::DesktopVm;
    Condition {
        name: "environment_comparable",
        holds: if desktop { Holds::No } else { Holds::Yes },
        reading: Some(if desktop { 1.0 } else { 0.0 }),
        threshold: Some(0.0),
        unit: "desktop_vm",
        decisive: false,
        detail: if observation.machine.evidence.is_empty() {
            "no sign of a virtual machine; a hypervisor can hide".to_owned()
        } else {
            observation.machine.evidence.join("; ")
        },
    }
}

/// What to look at first: what fails before what is unknown, and each in the order in which throughput is most often
/// lost outside the worker: who offers the load, who answers it, who else is on the core, then the rest.
pub(super) fn check_first(
    observation: &Observation,
    worker: &Worker,
    conditions: &[Condition],
    verdict: Verdict,
) -> Vec<String> {
    const ORDER: [&str; 10] = [
        "work_arrives",
        "load_generator_headroom",
        "upstream_headroom",
        "run_queue_wait",
        "steal",
        "network_headroom",
        "listen_queue",
        "memory_headroom",
        "interrupt_time",
        "environment_comparable",
    ];
    let in_order = || {
        ORDER
            .iter()
            .filter_map(|name| conditions.iter().find(|condition| condition.name == *name))
    };
    let mut lines: Vec<String> = in_order()
        .filter(|condition| condition.holds == Holds::No)
        .chain(in_order().filter(|condition| matches!(condition.holds, Holds::Unknown(_))))
        .filter_map(|condition| advice(condition, verdict))
        .collect();
    if let Some(peak) = worker
        .peak_share
        .filter(|&peak| peak >= ON_CPU_AT_LEAST && worker.cpu_share < ON_CPU_AT_LEAST)
    {
        lines.push(format!(
            "The worker reached {peak:.2} of a core between two looks but not on the whole: it is busy in bursts, so take a window in which it is."
        ));
    }
    for core in observation
        .frequency
        .iter()
        .flatten()
        .filter(|core| worker.cores.contains_key(&core.core))
    {
        if core.governor != "performance" {
            lines.push(format!(
                "Core {} runs under the governor {} at {} of {} MHz: nodes and days compare only at equal clocks.",
                core.core,
                core.governor,
                core.current_khz / 1000,
                core.max_khz / 1000
            ));
        }
    }
    lines
}

fn advice(condition: &Condition, verdict: Verdict) -> Option<String> {
    let Condition { detail, .. } = condition;
    let reading = condition.reading.unwrap_or(0.0);
    let low_throughput = verdict != Verdict::OnCpu;
    match (condition.name, &condition.holds) {
        ("work_arrives", Holds::No) => Some(format!(
            "No work reached the worker ({reading:.3} of a core at most): put it under its load, or check the pid."
        )),
        ("load_generator_headroom", Holds::No) => Some(format!(
            "The load generator has no headroom: it wanted {reading:.2} of a core ({detail}). Give it more threads or cores of its own; the worker cannot be fed faster."
        )),
        ("load_generator_headroom", Holds::Unknown(reason)) if low_throughput => Some(format!(
            "The load generator's headroom is unknown ({reason}): check its CPU where it runs, or give --load-pid."
        )),
        ("upstream_headroom", Holds::No) => Some(format!(
            "The upstream has no headroom: it wanted {reading:.2} of a core ({detail}). The worker waits for it."
        )),
        ("upstream_headroom", Holds::Unknown(reason)) if low_throughput => Some(format!(
            "The upstream's headroom is unknown ({reason}): check its CPU and latency where it runs, or give --upstream-pid."
        )),
        ("run_queue_wait", Holds::No) => Some(format!(
            "The worker waited for a core for {reading:.2} of the window ({detail}): pin it apart."
        )),
        ("steal", Holds::No) => Some(format!(
            "The hypervisor took {reading:.2} of the worker's core ({detail})."
        )),
        ("network_headroom", Holds::No) => Some(format!("The network loses segments: {detail}.")),
        ("listen_queue", Holds::No) => {
            Some(format!("Connections were lost at a full queue: {detail}."))
        }
        ("memory_headroom", Holds::No) => {
            Some(format!("The machine swaps: {reading:.0} pages {detail}."))
        }
        ("interrupt_time", Holds::No) => Some(format!(
            "Interrupts took {reading:.2} of the worker's core ({detail}): no stack of the worker shows them."
        )),
        ("environment_comparable", Holds::No) => Some(format!(
            "A desktop's virtual machine ({detail}): shares and ratios measured here do not carry over to a server."
        )),
        _ => None,
    }
}
