//! A lab from its first process to its last: start, watch, end, and what was measured meanwhile.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::catalog::{Lab, find};
use super::cpus::CpuPlan;
use super::loader::{LoadCommand, Loader};
use super::nginx::{Launch, Server};
use super::requirements::{self, Nginx};
use super::workers::CpuMeter;
use super::{LabError, directory, ports};
use crate::load::{Expectation, LoadErrors, LoadPlan, LoadResult, Pace};
use crate::sys;

/// How often the workers are looked at: often enough that a reload loses little of their CPU time.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How often another pair of ports is tried when somebody was faster.
const PORT_TRIES: u16 = 5;
/// More workers than this say nothing new and fill a small machine.
const WORKERS_MAX: u32 = 64;
/// What the service behind a gateway answers.
const UPSTREAM_BODY: &str = "hello from the service behind the gateway\n";

/// What the load of a lab does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LabLoad {
    /// Each connection sends its next request when the last is answered: saturates the worker.
    Closed,
    /// This many requests a second.
    Rate(f64),
    /// None; the caller brings its own.
    None,
}

/// Which lab to run, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct LabPlan {
    /// Name of the lab.
    pub name: String,
    /// Whether with the repair.
    pub fixed: bool,
    /// nginx workers; the lab's own number without it.
    pub workers: Option<u32>,
    /// What the load does.
    pub load: LabLoad,
    /// The command that generates the load; not used with [`LabLoad::None`].
    pub load_command: LoadCommand,
    /// How long to run after it is ready; until the stop flag is set without it.
    pub duration: Option<Duration>,
    /// First port to try; 18080 without it.
    pub port: Option<u16>,
    /// Where to make the private directory; a usual place without it.
    pub directory: Option<PathBuf>,
    /// The nginx to run; found without it.
    pub nginx: Option<PathBuf>,
    /// Lua that the gateway runs in its `init_by_lua` before it loads any module of its own, as a
    /// probe that counts calls must.
    pub prelude: Option<String>,
}

/// The line a lab prints when it is ready.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ready {
    /// Name of the lab.
    pub lab: &'static str,
    /// Whether with the repair.
    pub fixed: bool,
    /// Always true.
    pub ready: bool,
    /// Where the gateway answers.
    pub url: String,
    /// Who is who.
    pub pids: Pids,
    /// Who runs where.
    pub cores: Cores,
    /// The private directory, which goes away at the end.
    pub directory: PathBuf,
    /// The nginx that runs.
    pub nginx: PathBuf,
    /// A command that records it.
    pub case_hint: String,
}

/// Process ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pids {
    /// nginx's master of the gateway; SIGHUP to it reloads.
    pub master: u32,
    /// Its workers.
    pub workers: Vec<u32>,
    /// The worker of the service behind the gateway, if the lab has one.
    pub upstream: Vec<u32>,
    /// The load generator, if it runs.
    pub load: Vec<u32>,
}

/// CPUs that the processes are pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cores {
    /// One for each worker.
    pub workers: Vec<usize>,
    /// Of the load and of the upstream.
    pub load: usize,
    /// Why they are not apart, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The line a lab prints when it has ended. Without a load nothing is counted: the four figures of
/// the load are null then, each with its reason beside it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Right responses.
    pub requests: Option<u64>,
    /// Why `requests` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_reason: Option<&'static str>,
    /// Faulty ones.
    pub errors: Option<u64>,
    /// Why `errors` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_reason: Option<&'static str>,
    /// Right responses a second.
    pub req_per_s: Option<f64>,
    /// Why `req_per_s` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req_per_s_reason: Option<&'static str>,
    /// CPU time of all workers together by right responses, microseconds.
    pub worker_cpu_us_per_request: Option<f64>,
    /// Why `worker_cpu_us_per_request` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_cpu_us_per_request_reason: Option<&'static str>,
    /// CPU time of each worker by the time of the load, in cores; more entries than workers after a
    /// reload.
    pub worker_cpu_share: Vec<f64>,
    /// Seconds of load, or of the lab without one.
    pub seconds: f64,
    /// CPU time of the load generator by the time of the load, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cpu_share: Option<f64>,
    /// Faulty responses by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kinds: Option<LoadErrors>,
}

/// Runs a lab: starts it, calls `on_ready`, waits for the end of its duration or for `stop`, ends
/// everything that it started, and says what was measured.
///
/// Must be called on a thread that lives until it returns: the children die with that thread.
///
/// # Errors
///
/// See [`LabError`]. Whatever was started until then has ended when it returns.
pub fn run(
    plan: &LabPlan,
    mut on_ready: impl FnMut(&Ready),
    stop: &AtomicBool,
) -> Result<Summary, LabError> {
    let lab = find(&plan.name)?;
    let workers = check_plan(plan, lab)?;
    let nginx = requirements::check(plan.nginx.as_deref())?;
    let cpus = CpuPlan::of_this_machine(workers)?;
    let directory = directory::create(lab, plan.directory.as_deref())?;
    directory::write_files(lab, directory.path())?;

    let site = Site {
        lab,
        plan,
        nginx: &nginx,
        cpus: &cpus,
        directory: directory.path(),
    };
    if let Some(prelude) = &plan.prelude {
        directory::write(&site.prelude_path(), prelude)?;
    }
    let mut running = site.start()?;
    let mut meter = CpuMeter::start(running.gateway.master_pid());
    let started = Instant::now();
    let mut loader = site.start_load(running.port)?;

    on_ready(&site.ready(&running, loader.as_ref()));
    let result = watch(plan, &mut running, &mut meter, loader.as_mut(), stop);
    let seconds = started.elapsed().as_secs_f64();
    drop(loader);
    running.stop();
    Ok(summarise(&meter, result?, seconds))
}

fn check_plan(plan: &LabPlan, lab: &Lab) -> Result<u32, LabError> {
    let workers = plan.workers.unwrap_or(lab.workers);
    if workers == 0 || workers > WORKERS_MAX {
        let what = format!("{workers} workers: between 1 and {WORKERS_MAX} are possible");
        return Err(LabError::Plan { what });
    }
    if let LabLoad::Rate(rate) = plan.load
        && !(rate > 0.0 && rate.is_finite())
    {
        let what = format!("a load of {rate} requests/s: it must be above 0");
        return Err(LabError::Plan { what });
    }
    Ok(workers)
}

/// A lab on this machine, with all that was decided before anything is started.
struct Site<'a> {
    lab: &'static Lab,
    plan: &'a LabPlan,
    nginx: &'a Nginx,
    cpus: &'a CpuPlan,
    directory: &'a Path,
}

/// The servers of a running lab.
struct Running {
    // Dropped in this order: the gateway before what it asks.
    gateway: Server,
    upstream: Option<Server>,
    port: u16,
}

impl Running {
    fn stop(&mut self) {
        self.gateway.stop();
        if let Some(upstream) = &mut self.upstream {
            upstream.stop();
        }
    }
}

impl Site<'_> {
    /// Starts the servers on free ports, and again on others when somebody takes one in between.
    fn start(&self) -> Result<Running, LabError> {
        let mut from = self.plan.port.unwrap_or(ports::PORT_FIRST);
        let mut tries = 1;
        loop {
            let ports = ports::find_free(from, 2)?;
            let (port, upstream_port) = match ports.as_slice() {
                [port, upstream_port] => (*port, *upstream_port),
                _ => return Err(LabError::NoFreePort { from, to: from }),
            };
            match self.start_on(port, upstream_port) {
                Err(error) if Server::lost_its_port(&error) && tries < PORT_TRIES => {
                    tries += 1;
                    from = upstream_port.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    fn start_on(&self, port: u16, upstream_port: u16) -> Result<Running, LabError> {
        let values = self.values(port, upstream_port);
        let launch = |role, configuration: &str, port, workers, body: &str| {
            Server::start(&Launch {
                role,
                nginx: self.nginx,
                directory: self.directory,
                configuration,
                port,
                workers,
                body,
            })
        };
        let upstream = self
            .lab
            .upstream_conf
            .map(|conf| {
                let conf = directory::render(conf, &values);
                launch("upstream", &conf, upstream_port, 1, UPSTREAM_BODY)
            })
            .transpose()?;
        let conf = directory::render(self.lab.gateway_conf, &values);
        let gateway = launch(
            "gateway",
            &conf,
            port,
            self.cpus.workers.len(),
            self.lab.body,
        )?;
        Ok(Running {
            gateway,
            upstream,
            port,
        })
    }

    /// What the configurations leave open.
    fn values(&self, port: u16, upstream_port: u16) -> BTreeMap<&'static str, String> {
        // nginx would give its workers to `nobody`, who cannot enter the private directory.
        let user = if sys::is_root() { "user root;" } else { "" };
        BTreeMap::from([
            ("user", user.to_owned()),
            ("workers", self.cpus.workers.len().to_string()),
            ("worker_cpus", self.cpus.worker_masks()),
            ("load_cpus", self.cpus.load_mask()),
            ("dir", self.directory.display().to_string()),
            ("load_modules", self.nginx.load_modules.clone()),
            ("lua_path", self.nginx.lua_path.clone()),
            ("prelude", self.prelude_call()),
            ("fixed", self.plan.fixed.to_string()),
            ("port", port.to_string()),
            ("upstream_port", upstream_port.to_string()),
        ])
    }

    /// The prelude is a file of its own, so that nothing in it can end the block it is called from.
    fn prelude_call(&self) -> String {
        match self.plan.prelude {
            Some(_) => format!("dofile(\"{}\")", self.prelude_path().display()),
            None => String::new(),
        }
    }

    fn prelude_path(&self) -> PathBuf {
        self.directory.join("prelude.lua")
    }

    fn start_load(&self, port: u16) -> Result<Option<Loader>, LabError> {
        let pace = match self.plan.load {
            LabLoad::Closed => Pace::Closed,
            LabLoad::Rate(rate) => Pace::Rate(rate),
            LabLoad::None => return Ok(None),
        };
        let plan = LoadPlan {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            path: "/".to_owned(),
            host: "localhost".to_owned(),
            headers: vec![("User-Agent".to_owned(), "throughline-lab".to_owned())],
            connections: self.lab.connections,
            pace,
            warm_up: Duration::ZERO,
            duration: self.plan.duration,
            expect: Expectation {
                status: 200,
                body: Some(self.lab.body.to_owned()),
            },
            cpu: Some(self.cpus.load),
        };
        Loader::start(&self.plan.load_command, plan).map(Some)
    }

    fn ready(&self, running: &Running, loader: Option<&Loader>) -> Ready {
        let workers = running.gateway.workers();
        let targets: String = workers.iter().map(|pid| format!(" --pid {pid}")).collect();
        Ready {
            lab: self.lab.info.name,
            fixed: self.plan.fixed,
            ready: true,
            url: format!("http://127.0.0.1:{}/", running.port),
            case_hint: format!(
                "throughline record{targets} --for 30s -o {}.tl",
                self.lab.info.name
            ),
            pids: Pids {
                master: running.gateway.master_pid(),
                workers,
                upstream: running
                    .upstream
                    .as_ref()
                    .map(Server::workers)
                    .unwrap_or_default(),
                load: loader.map(Loader::pid).into_iter().collect(),
            },
            cores: Cores {
                workers: self.cpus.workers.clone(),
                load: self.cpus.load,
                note: self.cpus.note.clone(),
            },
            directory: self.directory.to_owned(),
            nginx: self.nginx.binary.clone(),
        }
    }
}

/// Waits for the end, keeping the meter up to date; ends the load and takes its result.
fn watch(
    plan: &LabPlan,
    running: &mut Running,
    meter: &mut CpuMeter,
    mut loader: Option<&mut Loader>,
    stop: &AtomicBool,
) -> Result<Option<LoadResult>, LabError> {
    let end = plan.duration.map(|duration| Instant::now() + duration);
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        let result = match loader.as_deref_mut() {
            Some(loader) => loader.wait(LOOK_PAUSE)?,
            None => {
                thread::sleep(LOOK_PAUSE);
                None
            }
        };
        meter.update();
        if result.is_some() {
            return Ok(result);
        }
        let ended = |role, reason| LabError::NginxEnded { role, reason };
        running.gateway.check_running(ended)?;
        if let Some(upstream) = &mut running.upstream {
            upstream.check_running(ended)?;
        }
    }
    let result = loader.map(Loader::finish).transpose();
    meter.update();
    result
}

fn summarise(meter: &CpuMeter, result: Option<LoadResult>, seconds: f64) -> Summary {
    let used = meter.used();
    let Some(result) = result else {
        return summarise_without_load(&used, seconds);
    };
    let cpu_us = used.iter().sum::<Duration>().as_secs_f64() * 1e6;
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
    let per_request = (result.requests > 0).then(|| cpu_us / result.requests as f64);
    Summary {
        requests: Some(result.requests),
        requests_reason: None,
        errors: Some(result.errors.total()),
        errors_reason: None,
        req_per_s: Some(result.req_per_s),
        req_per_s_reason: None,
        worker_cpu_us_per_request: per_request,
        worker_cpu_us_per_request_reason: per_request
            .is_none()
            .then_some("no request was answered rightly"),
        worker_cpu_share: shares(&used, result.seconds),
        seconds: result.seconds,
        load_cpu_share: (result.seconds > 0.0)
            .then_some(result.generator_cpu_us / 1e6 / result.seconds),
        error_kinds: Some(result.errors),
    }
}

fn summarise_without_load(used: &[Duration], seconds: f64) -> Summary {
    let reason = Some("the lab ran without a load of its own");
    Summary {
        requests: None,
        requests_reason: reason,
        errors: None,
        errors_reason: reason,
        req_per_s: None,
        req_per_s_reason: reason,
        worker_cpu_us_per_request: None,
        worker_cpu_us_per_request_reason: reason,
        worker_cpu_share: shares(used, seconds),
        seconds,
        load_cpu_share: None,
        error_kinds: None,
    }
}

fn shares(used: &[Duration], seconds: f64) -> Vec<f64> {
    let share = |cpu: &Duration| {
        if seconds > 0.0 {
            cpu.as_secs_f64() / seconds
        } else {
            0.0
        }
    };
    used.iter().map(share).collect()
}
