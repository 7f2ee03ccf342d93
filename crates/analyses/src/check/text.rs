//! The report as lines for a terminal or a log; no colour, no control characters.

use throughline_evidence::{Condition, Holds};
use throughline_host::{CoreActivity, PeerSource, Peers, ProcessActivity, Reading, ThreadActivity};

use super::{CheckReport, conditions, seconds};

/// Threads shown of one process.
const THREADS_SHOWN: usize = 8;
/// Processes shown of one kind.
const PROCESSES_SHOWN: usize = 8;

impl CheckReport {
    /// The report as lines, verdict first.
    pub fn text_lines(&self) -> Vec<String> {
        let mut lines = vec![match &self.no_data {
            Some(reason) => format!("verdict: no data ({reason})"),
            None => format!("verdict: {}", self.verdict.name()),
        }];
        lines.extend(
            self.claims
                .iter()
                .map(|claim| format!("  {}", claim.statement)),
        );
        lines.push(String::new());
        lines.push(
            "conditions (a reading against its threshold; * takes the verdict away when it fails)"
                .to_owned(),
        );
        lines.extend(self.conditions.iter().flat_map(condition));
        if !self.check_first.is_empty() {
            lines.push(String::new());
            lines.push("check first".to_owned());
            lines.extend(
                self.check_first
                    .iter()
                    .enumerate()
                    .map(|(at, line)| format!("  {}. {line}", at + 1)),
            );
        }
        lines.push(String::new());
        self.push_processes(&mut lines);
        self.push_machine(&mut lines);
        lines.push(String::new());
        lines.push("what this does not prove".to_owned());
        lines.extend(
            self.boundaries
                .iter()
                .map(|boundary| format!("  - {}", boundary.0)),
        );
        lines
    }

    fn push_processes(&self, lines: &mut Vec<String>) {
        let seen = &self.observation;
        lines.push(format!(
            "window {:.2} s; shares are of one core over the window",
            seconds(seen.window_ns)
        ));
        lines.push("targets".to_owned());
        lines.extend(processes(&seen.targets));
        for (title, peers) in [
            ("upstreams", &seen.upstreams),
            ("load generators", &seen.load_generators),
        ] {
            lines.push(peer_title(title, peers));
            lines.extend(processes(&peers.processes));
        }
        if let Some(worker) = &self.worker {
            lines.push(format!("tenants: {}", conditions::neighbours(seen, worker)));
        }
    }

    fn push_machine(&self, lines: &mut Vec<String>) {
        let seen = &self.observation;
        match &seen.cores {
            Err(absence) => lines.push(format!("cores: {absence}")),
            Ok(cores) => lines.extend(
                cores
                    .iter()
                    .filter(|core| self.is_of_interest(core))
                    .map(core_line),
            ),
        }
        let stalls = [
            ("cpu", &seen.pressure.cpu),
            ("io", &seen.pressure.io),
            ("memory", &seen.pressure.memory),
        ];
        let stalls: Vec<String> = stalls
            .iter()
            .map(|(name, shares)| match shares {
                Ok(shares) => format!("{name} {:.3}", shares.some_share),
                Err(absence) => format!("{name} unknown ({absence})"),
            })
            .collect();
        lines.push(format!(
            "pressure, some task stalled, machine-wide: {}",
            stalls.join(", ")
        ));
        lines.push(match &seen.network {
            Ok(network) => format!(
                "network: {} segments sent, {} again; {} listen overflows, {} listen drops, {} SYN drops, {} backlog drops",
                network.segments_sent,
                network.segments_retransmitted,
                network.listen_overflows,
                network.listen_drops,
                network.syn_drops,
                network.backlog_drops
            ),
            Err(absence) => format!("network: {absence}"),
        });
        match &seen.frequency {
            Ok(cores) => lines.extend(cores.iter().map(|core| {
                format!(
                    "frequency: core {} {} MHz, governor {}",
                    core.core,
                    core.current_khz / 1000,
                    core.governor
                )
            })),
            Err(absence) => lines.push(format!("frequency: {absence}")),
        }
        lines.push(format!(
            "machine: kernel {}, {}",
            seen.machine.kernel, seen.machine.processor
        ));
    }

    /// On a machine of many cores only those the worker used.
    fn is_of_interest(&self, core: &CoreActivity) -> bool {
        self.worker
            .as_ref()
            .is_none_or(|worker| worker.cores.contains_key(&core.core))
    }
}

fn condition(condition: &Condition) -> Vec<String> {
    let (mark, reason) = match &condition.holds {
        Holds::Yes => ("holds", None),
        Holds::No => ("fails", None),
        Holds::Unknown(reason) => ("unknown", Some(reason)),
    };
    let star = if condition.decisive { '*' } else { ' ' };
    let figures = match (condition.reading, condition.threshold) {
        (Some(reading), Some(threshold)) => {
            format!("{reading:.3} against {threshold} {}", condition.unit)
        }
        _ => String::new(),
    };
    let first = format!("{star} {:<7} {:<24} {figures}", mark, condition.name);
    let detail = reason.unwrap_or(&condition.detail);
    [first.trim_end().to_owned(), format!("            {detail}")]
        .into_iter()
        .filter(|line| !line.trim().is_empty())
        .collect()
}

fn peer_title(title: &str, peers: &Peers) -> String {
    let count = |connections: Option<usize>| connections.unwrap_or(0);
    match peers.source {
        PeerSource::Given => format!("{title}, as given"),
        PeerSource::FoundOnConnections => format!(
            "{title}, found on {} connections, of which {} lead out of sight and {} to the targets themselves",
            count(peers.connections),
            count(peers.connections_elsewhere),
            count(peers.connections_within)
        ),
    }
}

fn processes(activities: &[ProcessActivity]) -> Vec<String> {
    let mut order: Vec<&ProcessActivity> = activities.iter().collect();
    order.sort_by_key(|activity| std::cmp::Reverse(activity.cpu_ns));
    let mut lines: Vec<String> = order
        .iter()
        .take(PROCESSES_SHOWN)
        .flat_map(|activity| process(activity))
        .collect();
    if order.len() > PROCESSES_SHOWN {
        lines.push(format!("  and {} more", order.len() - PROCESSES_SHOWN));
    }
    lines
}

fn process(activity: &ProcessActivity) -> Vec<String> {
    let mut lines = vec![format!(
        "  {} (pid {}): {:.3} cores, {} threads{}",
        activity.process.comm,
        activity.process.pid,
        activity.cpu_cores(),
        activity.threads.len(),
        if activity.ended {
            ", ended in the window"
        } else {
            ""
        }
    )];
    lines.extend(activity.threads.iter().take(THREADS_SHOWN).map(thread));
    if activity.threads.len() > THREADS_SHOWN {
        lines.push(format!(
            "    and {} more threads",
            activity.threads.len() - THREADS_SHOWN
        ));
    }
    lines
}

fn thread(thread: &ThreadActivity) -> String {
    let cores = match &thread.allowed {
        Ok(allowed) => allowed.only().map_or_else(
            || format!("cores {allowed}"),
            |core| format!("pinned to core {core}"),
        ),
        Err(absence) => format!("cores unknown ({absence})"),
    };
    format!(
        "    {} {}: cpu {:.3} (user {}), waits for a core {}, switches {} voluntary {} not, {cores}",
        thread.tid,
        thread.comm,
        thread.cpu_share(),
        figure(&thread.user_share_of_cpu),
        figure(&thread.wait_share()),
        count(&thread.voluntary_switches),
        count(&thread.involuntary_switches),
    )
}

fn figure(reading: &Reading<f64>) -> String {
    reading
        .as_ref()
        .map_or_else(|_| "?".to_owned(), |value| format!("{value:.3}"))
}

fn count(reading: &Reading<u64>) -> String {
    reading
        .as_ref()
        .map_or_else(|_| "?".to_owned(), u64::to_string)
}

fn core_line(core: &CoreActivity) -> String {
    format!(
        "core {}: user {:.3} system {:.3} idle {:.3} iowait {:.3} irq {:.3} softirq {:.3} steal {:.3}",
        core.core,
        core.user_share,
        core.system_share,
        core.idle_share,
        core.iowait_share,
        core.irq_share,
        core.softirq_share,
        core.steal_share
    )
}
