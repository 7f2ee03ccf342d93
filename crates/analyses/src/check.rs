//! May a flame graph explain this throughput at all, and which one?
//!
//! The decision rule: a graph of samples on the CPU explains throughput when the worker is bound by its
//! core while the upstream, the network and the load generator have headroom; a graph of blocked time when
//! the worker is mostly off its core; between, both. When something else bounds the throughput, no graph of
//! the worker does, and [`CheckReport::check_first`] says where to look.
//!
//! Pure: takes an [`Observation`], reads no clock and no file.
//!
//! Ways in which the answer may mislead:
//! - one window is one moment: a worker that saturates in bursts reads as "between" or as mostly idle
//!   ([`Worker::peak_share`] shows it when there were looks in between);
//! - a busy-polling worker or generator reads as saturated and may not be;
//! - a thread's CPU time includes the interrupts that hit its core, unless the kernel accounts them;
//! - run-queue wait is added when the wait ends, and hypervisor steal is only seen when it is reported.

mod conditions;
mod json;
mod text;
mod worker;

use throughline_evidence::{Boundary, Claim, Condition, Denominator, Holds, Support, Verdict};
use throughline_host::{Observation, Virtualisation};

pub use worker::Worker;

/// A worker at or above this share of a core is bound by it. Source: the decision rule, "CPU >= 80 %: on-CPU graph".
pub const ON_CPU_AT_LEAST: f64 = 0.80;
/// A worker at or below this share is mostly off its core. Source: the decision rule, "CPU <= 40 % and throughput
/// stuck: off-CPU graph".
pub const OFF_CPU_AT_MOST: f64 = 0.40;
/// The most an upstream or load generator may want of a core and still have headroom. Source: the guard of the A/B
/// experiments, generator cpu/wall <= 0.7, above which the generator bends what it measures.
pub const PEER_DEMAND_AT_MOST: f64 = 0.70;
/// The most a worker may wait for a core. Source: the guard of the A/B experiments, run delay over 5 % of wall reads
/// as contended (a quiet machine measured 0.02 %).
pub const RUN_QUEUE_WAIT_AT_MOST: f64 = 0.05;
/// The most the hypervisor may take of the worker's cores: the same loss as run-queue wait, one level down.
pub const STEAL_AT_MOST: f64 = 0.05;
/// Segments sent again per segment sent. Our own choice: a loss of 1 % halves what one TCP connection with a
/// millisecond's round trip and a timeout of 200 ms can carry.
pub const RETRANSMITS_AT_MOST: f64 = 0.01;
/// Fewer segments than this make a share of them noise (one in a hundred would fail).
pub const FEWEST_SEGMENTS: u64 = 100;
/// Interrupts on the worker's cores. Our own choice: a tenth of a core is more than the effects a graph is asked to
/// explain, and no stack of the worker shows it.
pub const INTERRUPTS_AT_MOST: f64 = 0.10;
/// Below this a worker does nothing that a graph could show. Source: at 99 Hz for 10 s, 1 % is ten samples.
pub const IDLE_BELOW: f64 = 0.01;
/// Shorter windows say nothing. Source: process totals come in clock ticks of 10 ms, 1 % of a second.
pub const SHORTEST_WINDOW_NS: u64 = 1_000_000_000;

/// The answer, with all it rests on.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// Which graph may explain the worker; [`Verdict::NotExplainable`] too when there were no data.
    pub verdict: Verdict,
    /// Why nothing could be concluded.
    pub no_data: Option<String>,
    /// The thread the verdict is about.
    pub worker: Option<Worker>,
    /// What the verdict depends on, and what is worth knowing.
    pub conditions: Vec<Condition>,
    /// What to look at before, or beside, a graph; most promising first.
    pub check_first: Vec<String>,
    /// What was found.
    pub claims: Vec<Claim>,
    /// What was not shown.
    pub boundaries: Vec<Boundary>,
    /// What was read.
    pub observation: Observation,
}

impl CheckReport {
    /// 0 a graph may explain it, 1 it may not, 3 not enough data to say.
    pub fn exit_code(&self) -> u8 {
        match (&self.no_data, self.verdict) {
            (Some(_), _) => 3,
            (None, Verdict::NotExplainable) => 1,
            (None, Verdict::OnCpu | Verdict::OffCpu | Verdict::Both) => 0,
        }
    }
}

/// Decides by the rule above.
pub fn check(observation: &Observation) -> CheckReport {
    let worker = worker::busiest(observation);
    if let Some(reason) = no_data(observation, worker.as_ref()) {
        return without_data(observation, worker, reason);
    }
    let Some(worker) = worker else {
        return without_data(
            observation,
            None,
            "no thread of the targets was read twice".to_owned(),
        );
    };
    let conditions = conditions::all(observation, &worker);
    let forbidden = conditions.iter().any(Condition::forbids);
    let verdict = if forbidden {
        Verdict::NotExplainable
    } else {
        by_share(&worker)
    };
    let check_first = conditions::check_first(observation, &worker, &conditions, verdict);
    CheckReport {
        verdict,
        no_data: None,
        claims: claims(observation, &worker, &conditions, verdict),
        boundaries: boundaries(observation, &worker, &conditions, verdict),
        worker: Some(worker),
        conditions,
        check_first,
        observation: observation.clone(),
    }
}

fn by_share(worker: &Worker) -> Verdict {
    let share = worker.cpu_share.max(worker.process_share_of_its_cores);
    if share >= ON_CPU_AT_LEAST {
        Verdict::OnCpu
    } else if share <= OFF_CPU_AT_MOST && worker.process_cpu_cores < ON_CPU_AT_LEAST {
        Verdict::OffCpu
    } else {
        // Many threads, none of them bound, that use much CPU together are both too.
        Verdict::Both
    }
}

fn no_data(observation: &Observation, worker: Option<&Worker>) -> Option<String> {
    if !observation.targets.is_empty() && observation.targets.iter().all(|target| target.ended) {
        return Some("every target ended before the window did".to_owned());
    }
    let worker = worker?;
    (worker.window_ns < SHORTEST_WINDOW_NS).then(|| {
        format!(
            "the worker was seen for {:.2} s, {:.0} s are needed",
            seconds(worker.window_ns),
            seconds(SHORTEST_WINDOW_NS)
        )
    })
}

/// The report of a window that shows nothing: the conditions that every report has, all unknown.
fn without_data(observation: &Observation, worker: Option<Worker>, reason: String) -> CheckReport {
    let names = [
        ("worker_saturated", "core"),
        ("upstream_headroom", "core"),
        ("load_generator_headroom", "core"),
        ("run_queue_wait", "window"),
        ("error_rate_stable", "errors_per_s"),
    ];
    CheckReport {
        verdict: Verdict::NotExplainable,
        worker,
        conditions: names
            .into_iter()
            .map(|(name, unit)| Condition::unknown(name, unit, reason.as_str()))
            .collect(),
        check_first: vec![format!(
            "{reason}: check that the process keeps running, and take a window of 10 s"
        )],
        claims: Vec::new(),
        boundaries: vec![Boundary(
            "Nothing was shown about the target, neither good nor bad.".to_owned(),
        )],
        no_data: Some(reason),
        observation: observation.clone(),
    }
}

fn claims(
    observation: &Observation,
    worker: &Worker,
    conditions: &[Condition],
    verdict: Verdict,
) -> Vec<Claim> {
    let of_window = |window_ns: u64| Denominator {
        name: "window_ns".to_owned(),
        value: window_ns as f64,
    };
    let wait = match &worker.wait_share {
        Ok(wait) => format!("{wait:.3} of the window it waited for one"),
        Err(absence) => format!("its wait for a core is unknown ({absence})"),
    };
    let mut claims = vec![Claim {
        statement: format!(
            "The busiest thread of the targets, {}, used {:.3} of a core; {wait}.",
            worker.name(),
            worker.cpu_share
        ),
        support: Support::Measured,
        denominator: of_window(worker.window_ns),
    }];
    let failed: Vec<&str> = conditions
        .iter()
        .filter(|condition| condition.forbids())
        .map(|condition| condition.name)
        .collect();
    let statement = match verdict {
        Verdict::OnCpu => "The worker is bound by its core: a graph of samples on the CPU may explain it.".to_owned(),
        Verdict::OffCpu => {
            "The worker is mostly off its core: a graph of blocked time may explain it, if throughput is stuck.".to_owned()
        }
        Verdict::Both => "The worker is neither bound nor mostly blocked: it takes both graphs.".to_owned(),
        Verdict::NotExplainable => format!("No graph of the worker explains this while these fail: {}.", failed.join(", ")),
    };
    claims.push(Claim {
        statement,
        support: Support::Inferred,
        denominator: of_window(observation.window_ns),
    });
    claims
}

fn boundaries(
    observation: &Observation,
    worker: &Worker,
    conditions: &[Condition],
    verdict: Verdict,
) -> Vec<Boundary> {
    let mut texts = vec![
        "Throughput, latency and errors were not measured: nothing here is per request, and a regression is not shown.".to_owned(),
        format!("One window of {:.1} s: bursts outside it are not seen.", seconds(observation.window_ns)),
    ];
    if verdict == Verdict::OffCpu {
        texts.push(
            "That work waits for this worker is not shown: an underused server looks the same."
                .to_owned(),
        );
    }
    for condition in conditions {
        if let Holds::Unknown(reason) = &condition.holds {
            texts.push(format!("{} is not known: {reason}.", condition.name));
        }
    }
    if worker
        .allowed
        .as_ref()
        .is_ok_and(|allowed| allowed.only().is_none())
    {
        texts.push(
            "The worker is not pinned: which core it used is an estimate from where it was seen."
                .to_owned(),
        );
    }
    if observation.machine.virtualisation != Virtualisation::NoneSeen {
        texts.push(
            "A virtual machine: what the hypervisor took is seen only as far as it reports steal."
                .to_owned(),
        );
    }
    if let Some(limit) = &observation.looks_limited {
        texts.push(format!(
            "Bursts and moves between cores are not seen: {limit}."
        ));
    }
    for limit in observation
        .upstreams
        .search_limits
        .iter()
        .chain(&observation.load_generators.search_limits)
    {
        let text = format!("The search for the other ends of connections was incomplete: {limit}.");
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.into_iter().map(Boundary).collect()
}

/// Nanoseconds as seconds, for sentences.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
