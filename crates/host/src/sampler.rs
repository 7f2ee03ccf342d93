//! The window: read everything, look at the threads now and then, read everything again.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::{
    absence::{Absence, Reading},
    cores,
    error::HostError,
    files::Roots,
    frequency, machine, memory, network,
    observation::{Observation, PeerSource, Peers, ProcessActivity, Role},
    peers::{self, Found},
    pressure,
    process::{Process, all_pids, describe},
    softirq,
    subject::{Depth, Subject},
    tenants::{Census, MOST_PROCESSES_PER_LOOK},
};

/// Beyond this many threads they are read at start and end only. A look takes two files a thread, about
/// 20 us, so 512 cost 1 % of a core at one look a second.
const MOST_THREADS_PER_LOOK: usize = 512;
/// How often connections are searched again when none were found at the start.
const MOST_PEER_SEARCHES: u32 = 5;
/// Looks closer together than this would measure little but themselves.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// What to sample.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The processes the question is about.
    pub targets: Vec<Process>,
    /// The processes they call.
    pub upstream: PeerChoice,
    /// The processes that call them.
    pub load: PeerChoice,
    /// The window.
    pub duration: Duration,
    /// Time between looks; at least 50 ms.
    pub interval: Duration,
}

/// How the peers are to be found.
#[derive(Debug, Clone)]
pub enum PeerChoice {
    /// These.
    Given(Vec<Process>),
    /// The owners of the sockets at the other ends of the targets' connections.
    FindOnConnections,
}

/// Samples for the plan's duration. `on_look` is called after every look with the time elapsed, and may end the
/// window early; what was measured until then is returned.
///
/// A target that ends is no error: its activity says so.
///
/// # Errors
/// The plan has no targets, or /proc cannot be listed.
pub fn sample(
    plan: &Plan,
    on_look: &mut dyn FnMut(Duration) -> ControlFlow<()>,
) -> Result<Observation, HostError> {
    sample_below(Roots::live(), plan, on_look)
}

fn sample_below(
    roots: Roots,
    plan: &Plan,
    on_look: &mut dyn FnMut(Duration) -> ControlFlow<()>,
) -> Result<Observation, HostError> {
    if plan.targets.is_empty() {
        return Err(HostError::BadPlan("no target"));
    }
    let mut window = Window::begin(roots, plan)?;
    while window.sleep() {
        window.look()?;
        if on_look(window.began.elapsed()).is_break() {
            break;
        }
    }
    window.finish()
}

/// Counters of the machine at one moment.
struct MachineCounters {
    at: Instant,
    cores: Reading<std::collections::BTreeMap<u32, [u64; 8]>>,
    pressure: pressure::Snapshot,
    softirqs: Reading<std::collections::BTreeMap<String, u64>>,
    network: Reading<network::Counters>,
    vmstat: Reading<std::collections::BTreeMap<Vec<u8>, u64>>,
}

impl MachineCounters {
    fn read(roots: &Roots, target: u32) -> Self {
        Self {
            at: Instant::now(),
            cores: roots.proc_file("stat").map(|bytes| cores::parse(&bytes)),
            pressure: pressure::snapshot(roots),
            softirqs: roots
                .proc_file("softirqs")
                .and_then(|bytes| softirq::parse(&bytes)),
            network: network::snapshot(roots, target),
            vmstat: memory::vmstat(roots),
        }
    }
}

/// A window in progress.
struct Window<'a> {
    roots: Roots,
    plan: &'a Plan,
    began: Instant,
    counters: MachineCounters,
    census: Census,
    subjects: Vec<Subject>,
    found: Found,
    peer_searches: u32,
    looks: u32,
    looks_limited: Option<String>,
}

impl<'a> Window<'a> {
    fn begin(roots: Roots, plan: &'a Plan) -> Result<Self, HostError> {
        let all = all_pids(&roots)?;
        let first_target = plan.targets.first().map_or(0, |process| process.pid);
        // Peers first: the search may take longer than all the rest, and is not part of the window.
        let targets: Vec<u32> = plan.targets.iter().map(|process| process.pid).collect();
        let found = if plan.seeks_peers() {
            peers::find(&roots, &targets, &all)
        } else {
            Found::default()
        };
        let mut window = Self {
            counters: MachineCounters::read(&roots, first_target),
            census: Census::begin(),
            subjects: Vec::new(),
            found: Found::default(),
            peer_searches: u32::from(plan.seeks_peers()),
            looks: 0,
            looks_limited: None,
            began: Instant::now(),
            roots,
            plan,
        };
        for process in &plan.targets {
            window.admit(process.clone(), Role::Target, None);
        }
        for (choice, role) in [
            (&plan.upstream, Role::Upstream),
            (&plan.load, Role::LoadGenerator),
        ] {
            if let PeerChoice::Given(processes) = choice {
                for process in processes {
                    window.admit(process.clone(), role, None);
                }
            }
        }
        window.adopt(found);
        window.census.look(&window.roots, &all);
        let threads: usize = window.subjects.iter().map(Subject::thread_count).sum();
        if threads > MOST_THREADS_PER_LOOK {
            window.looks_limited = Some(format!(
                "{threads} threads: read at start and end only, beyond {MOST_THREADS_PER_LOOK}"
            ));
        }
        // The duration runs from when all have been read once, so no thread's window is shorter.
        window.began = Instant::now();
        Ok(window)
    }

    /// Sleeps until the next look; false when the last reading is due.
    fn sleep(&self) -> bool {
        let left = self.plan.duration.saturating_sub(self.began.elapsed());
        let interval = self.plan.interval.max(SHORTEST_INTERVAL);
        if left <= interval {
            std::thread::sleep(left);
            return false;
        }
        std::thread::sleep(interval);
        true
    }

    fn look(&mut self) -> Result<(), HostError> {
        if self
            .subjects
            .iter()
            .filter(|subject| subject.role == Role::Target)
            .all(|subject| subject.ended)
        {
            return Ok(());
        }
        let all = all_pids(&self.roots)?;
        if self.looks_limited.is_none() {
            self.looks += 1;
            for subject in &mut self.subjects {
                subject.look(&self.roots, Depth::Times);
            }
        }
        if all.len() <= MOST_PROCESSES_PER_LOOK {
            self.take_census(&all);
        }
        let peerless = self.found.upstream.pids.is_empty() || self.found.load.pids.is_empty();
        if peerless && self.plan.seeks_peers() && self.peer_searches < MOST_PEER_SEARCHES {
            self.peer_searches += 1;
            let found = peers::find(&self.roots, &self.target_pids(), &all);
            self.adopt(found);
        }
        Ok(())
    }

    /// Looks at all processes, and follows those that a target started since.
    fn take_census(&mut self, all: &[u32]) {
        let since = self.began;
        for newcomer in self.census.look(&self.roots, all) {
            if self.target_pids().contains(&newcomer.parent)
                && let Ok(process) = describe(&self.roots, newcomer.pid)
            {
                self.admit(process, Role::Target, Some(since));
            }
        }
    }

    fn target_pids(&self) -> Vec<u32> {
        let targets = self
            .subjects
            .iter()
            .filter(|subject| subject.role == Role::Target);
        targets.map(|subject| subject.process.pid).collect()
    }

    /// Follows a process, unless it is followed already: a gateway that calls itself is a target.
    fn admit(&mut self, process: Process, role: Role, since: Option<Instant>) {
        if !self
            .subjects
            .iter()
            .any(|subject| subject.process.pid == process.pid)
        {
            self.subjects
                .push(Subject::begin(&self.roots, process, role, since));
        }
    }

    fn adopt(&mut self, found: Found) {
        for (direction, choice, role) in [
            (&found.upstream, &self.plan.upstream, Role::Upstream),
            (&found.load, &self.plan.load, Role::LoadGenerator),
        ] {
            if matches!(choice, PeerChoice::FindOnConnections) {
                for &pid in &direction.pids {
                    if let Ok(process) = describe(&self.roots, pid) {
                        self.admit(process, role, None);
                    }
                }
            }
        }
        if found.upstream.connections + found.load.connections
            >= self.found.upstream.connections + self.found.load.connections
        {
            self.found = found;
        }
    }

    fn finish(mut self) -> Result<Observation, HostError> {
        for subject in &mut self.subjects {
            subject.look(&self.roots, Depth::Whole);
        }
        let all = all_pids(&self.roots)?;
        self.take_census(&all);
        let first_target = self.plan.targets.first().map_or(0, |process| process.pid);
        let last = MachineCounters::read(&self.roots, first_target);
        let first = self.counters;
        let window_ns = u64::try_from(last.at.saturating_duration_since(first.at).as_nanos())
            .unwrap_or(u64::MAX);
        let mut tenants = self.census.finish(&self.roots);
        for tenant in &mut tenants {
            let subject = self
                .subjects
                .iter()
                .find(|subject| subject.process.pid == tenant.pid);
            if let Some(subject) = subject {
                tenant.role = Some(subject.role);
                // The subject's own threads were read by the nanosecond.
                tenant.by_core = subject
                    .cpu_by_core_ns()
                    .into_iter()
                    .map(|(core, cpu_ns)| (core, crate::observation::share(cpu_ns, window_ns)))
                    .collect();
            } else if tenant.pid == std::process::id() {
                tenant.role = Some(Role::Observer);
            }
        }
        let (mut targets, mut upstreams, mut load_generators) =
            (Vec::new(), Vec::new(), Vec::new());
        for subject in self.subjects {
            match subject.role {
                Role::Upstream => upstreams.push(subject.finish()),
                Role::LoadGenerator => load_generators.push(subject.finish()),
                Role::Target | Role::Observer => targets.push(subject.finish()),
            }
        }
        let core_numbers: Vec<u32> = last
            .cores
            .iter()
            .flat_map(|cores| cores.keys().copied())
            .collect();
        Ok(Observation {
            asked_ns: u64::try_from(self.plan.duration.as_nanos()).unwrap_or(u64::MAX),
            window_ns,
            looks: self.looks,
            looks_limited: self.looks_limited,
            targets,
            upstreams: peers_of(
                &self.plan.upstream,
                upstreams,
                &self.found,
                &self.found.upstream,
            ),
            load_generators: peers_of(
                &self.plan.load,
                load_generators,
                &self.found,
                &self.found.load,
            ),
            tenants,
            cores: both(first.cores, last.cores).map(|(first, last)| cores::between(&first, &last)),
            pressure: pressure::between(&first.pressure, &last.pressure, window_ns),
            softirqs: both(first.softirqs, last.softirqs)
                .map(|(first, last)| softirq::between(&first, &last)),
            network: both(first.network, last.network)
                .and_then(|(first, last)| network::between(&first, &last)),
            frequency: frequency::read(&self.roots, core_numbers.into_iter()),
            memory: both(first.vmstat, last.vmstat).and_then(|(first, last)| {
                memory::activity(&memory::meminfo(&self.roots)?, &first, &last)
            }),
            machine: machine::read(&self.roots),
        })
    }
}

impl Plan {
    fn seeks_peers(&self) -> bool {
        matches!(self.upstream, PeerChoice::FindOnConnections)
            || matches!(self.load, PeerChoice::FindOnConnections)
    }
}

fn both<T>(first: Reading<T>, last: Reading<T>) -> Result<(T, T), Absence> {
    Ok((first?, last?))
}

fn peers_of(
    choice: &PeerChoice,
    processes: Vec<ProcessActivity>,
    found: &Found,
    direction: &peers::Direction,
) -> Peers {
    match choice {
        PeerChoice::Given(_) => Peers {
            processes,
            source: PeerSource::Given,
            connections: None,
            connections_elsewhere: None,
            connections_within: None,
            search_limits: Vec::new(),
        },
        PeerChoice::FindOnConnections => Peers {
            processes,
            source: PeerSource::FoundOnConnections,
            connections: Some(direction.connections),
            connections_elsewhere: Some(direction.elsewhere),
            connections_within: Some(direction.within),
            search_limits: found.limits.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, time::Duration};

    use super::{PeerChoice, Plan, sample_below};
    use crate::{absence::Absence, files::Roots, process::describe};

    /// A /proc with one process, one thread, and nothing else; the thread has no schedstat and no status.
    fn bare() -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        let task = roots.proc.join("5/task/5");
        std::fs::create_dir_all(&task).unwrap();
        let mut stat = "5 (a) b) S 1".to_owned();
        for field in 5..=52 {
            stat.push_str(&format!(" {field}"));
        }
        std::fs::write(task.join("stat"), &stat).unwrap();
        std::fs::write(roots.proc.join("5/stat"), &stat).unwrap();
        (folder, roots)
    }

    fn plan(roots: &Roots) -> Plan {
        Plan {
            targets: vec![describe(roots, 5).unwrap()],
            upstream: PeerChoice::FindOnConnections,
            load: PeerChoice::FindOnConnections,
            duration: Duration::from_millis(120),
            interval: Duration::from_millis(50),
        }
    }

    #[test]
    fn a_proc_without_its_files_gives_reasons_and_no_error() {
        let (_keep, roots) = bare();
        let seen = sample_below(roots.clone(), &plan(&roots), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(matches!(seen.cores, Err(Absence::NotOffered(_))));
        assert!(seen.pressure.cpu.is_err() && seen.softirqs.is_err() && seen.memory.is_err());
        assert!(matches!(seen.network, Err(Absence::NotOffered(_))));
        let thread = &seen.targets[0].threads[0];
        assert!(matches!(
            thread.run_queue_wait_ns,
            Err(Absence::NotOffered(_))
        ));
        assert!(matches!(
            thread.voluntary_switches,
            Err(Absence::NotOffered(_))
        ));
        assert!(thread.allowed.is_err());
        assert_eq!((thread.cpu_ns, thread.comm.as_str()), (0, "a) b"));
        assert!(!seen.targets[0].ended);
    }

    #[test]
    fn a_pid_that_another_process_took_over_is_not_taken_for_the_target() {
        let (_keep, roots) = bare();
        let mut plan = plan(&roots);
        // Another start time: the target was an older process of the same pid.
        plan.targets[0].start_ticks = 1;
        let seen = sample_below(roots, &plan, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(seen.targets[0].ended);
        assert!(seen.targets[0].threads.is_empty());
    }

    #[test]
    fn the_caller_can_end_the_window_early() {
        let (_keep, roots) = bare();
        let plan = Plan {
            duration: Duration::from_secs(600),
            ..plan(&roots)
        };
        let seen = sample_below(roots, &plan, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(seen.window_ns < plan.duration.as_nanos() as u64);
    }
}
