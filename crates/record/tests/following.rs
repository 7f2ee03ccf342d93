//! A recording follows what its targets do: they start threads and processes, change their program, reload, and live in namespaces.

mod recorder;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use recorder::{Order, Recorder};
use support::program::{Program, compile, scratch};
use support::recording::{Plan, Recording, one_at_a_time, record, record_to_the_end};
use throughline_profile::{Capture, Profile, Sample};
use throughline_record::{Keeper, Progress, RecordPlan};

const RATE_HZ: u32 = 499;

/// What a recorder in a process of its own runs.
#[test]
#[ignore = "started by the other tests"]
fn recorder_process() {
    recorder::serve();
}

fn target(arguments: &[&str]) -> Program {
    let mut program = Program::start(compile("targets.c", "targets", &[]), arguments);
    program.expect_line("ready");
    program
}

fn pid_of(recording: &Recording, sample: &Sample) -> u32 {
    recording.profile.threads.get(sample.thread).pid
}

/// On-CPU samples by process.
fn by_pid(recording: &Recording) -> BTreeMap<u32, Vec<&Sample>> {
    let mut found = BTreeMap::<u32, Vec<&Sample>>::new();
    for sample in recording.on_cpu() {
        found
            .entry(pid_of(recording, sample))
            .or_default()
            .push(sample);
    }
    found
}

fn assert_complete(recording: &Recording) {
    let (cut, all) = (recording.incomplete(), recording.on_cpu().count());
    assert!(cut * 100 <= all, "{cut} of {all} samples are incomplete");
}

#[test]
fn every_short_lived_child_is_sampled_and_named() {
    let _turn = one_at_a_time();
    let mut program = target(&["forks", "20", "0.05"]);
    let Some(recording) = record_to_the_end(Plan::both(RATE_HZ), &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    let children: Vec<u32> = program
        .numbers()
        .iter()
        .filter(|(name, _)| name == "child")
        .map(|(_, pid)| *pid as u32)
        .collect();
    assert_eq!(children.len(), 20);
    let samples = by_pid(&recording);
    let expected = 0.05 * f64::from(RATE_HZ);
    for pid in &children {
        let own = samples.get(pid).map_or(&[][..], Vec::as_slice);
        let named = own
            .iter()
            .filter(|sample| recording.holds(sample, "child_work"))
            .count();
        // A child's clock begins with a whole period, so on average half a sample is missing; its end is in the kernel.
        assert!(
            (own.len() as f64 - expected).abs() <= 0.2 * expected + 2.0,
            "{} samples of child {pid}, {expected} were due",
            own.len()
        );
        assert!(
            named as f64 >= 0.9 * own.len() as f64,
            "{named} of {} are in child_work",
            own.len()
        );
    }
    let lost = recording.profile.ledger.lost_total().0;
    assert!(
        lost * 100 <= recording.profile.ledger.taken,
        "{}",
        recording.profile.ledger
    );
    let targets = &recording.profile.capture.targets;
    for pid in &children {
        let facts = targets
            .iter()
            .find(|target| target.pid == *pid)
            .expect("every child is a target");
        assert!(
            facts.ended.is_some_and(|ended| ended >= facts.joined),
            "{facts:?}"
        );
    }
}

/// Children that end before the recorder has looked at them are named through their parent, whose memory they had.
#[test]
fn children_that_are_gone_before_they_could_be_read_are_named() {
    let _turn = one_at_a_time();
    let mut program = target(&["forks", "400", "0.004"]);
    let plan = Plan::on_cpu(1999);
    let Some(recording) = record_to_the_end(plan, &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    let told: Vec<(String, f64)> = program.numbers();
    let cpu = told
        .iter()
        .find(|(name, _)| name == "cpu")
        .expect("it says so")
        .1;
    let parent = program.pid();
    let children: usize = by_pid(&recording)
        .iter()
        .filter(|(pid, _)| **pid != parent)
        .map(|(_, samples)| samples.len())
        .sum();
    eprintln!(
        "{children} samples of 400 children that used {cpu:.3} s: {:.3} of rate x CPU time; {}",
        children as f64 / (cpu * 1999.0),
        recording.profile.ledger
    );
    let lost = recording.profile.ledger.lost_total().0;
    assert!(
        lost * 50 <= recording.profile.ledger.taken,
        "{}",
        recording.profile.ledger
    );
    let named = recording
        .on_cpu()
        .filter(|sample| recording.holds(sample, "child_work"))
        .count();
    assert!(named * 10 >= children * 8, "{named} of {children}");
}

#[test]
fn threads_that_start_during_the_recording_are_sampled() {
    let _turn = one_at_a_time();
    let mut program = target(&["late", "4", "0.3"]);
    let Some(recording) = record_to_the_end(Plan::both(RATE_HZ), &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    assert_complete(&recording);
    let threads: Vec<u32> = program
        .numbers()
        .iter()
        .filter(|(name, _)| name == "thread")
        .map(|(_, tid)| *tid as u32)
        .collect();
    assert_eq!(threads.len(), 4);
    for tid in threads {
        let own = recording
            .on_cpu()
            .filter(|sample| recording.profile.threads.get(sample.thread).tid == tid);
        let named = own
            .filter(|sample| recording.holds(sample, "late_work"))
            .count() as f64;
        let expected = 0.3 * f64::from(RATE_HZ);
        assert!(
            (named - expected).abs() <= 0.05 * expected + 2.0,
            "{named} samples of thread {tid}, {expected} were due"
        );
    }
}

#[test]
fn a_target_that_executes_another_program_is_named_by_each_in_turn() {
    let _turn = one_at_a_time();
    // Another file, so that other code lies at the same addresses.
    let second = compile("targets.c", "second", &["-O1", "-DSECOND"]);
    let mut program = target(&["exec", second.to_str().expect("a path of this test")]);
    let Some(recording) = record_to_the_end(Plan::both(RATE_HZ), &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    let count = |name: &str| {
        recording
            .on_cpu()
            .filter(|sample| recording.holds(sample, name))
            .count()
    };
    let (before, after) = (count("before_exec"), count("after_exec"));
    let expected = 0.7 * f64::from(RATE_HZ);
    eprintln!(
        "{before} samples before and {after} after, {expected} were due of each; {}",
        recording.profile.ledger
    );
    for found in [before, after] {
        assert!((found as f64 - expected).abs() <= 0.06 * expected);
    }
    assert_complete(&recording);
    assert_eq!(recording.target().exe, second.to_string_lossy());
}

/// Names a process when the recording has run for a while.
struct Join {
    pid: u32,
    begun: Option<Instant>,
    program: Program,
}

impl Keeper for Join {
    fn flush(&mut self, _: &mut Profile) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    fn go_on(&mut self, _: Progress) -> bool {
        self.begun.get_or_insert_with(Instant::now);
        true
    }

    fn targets_now(&mut self) -> Vec<u32> {
        if self
            .begun
            .is_some_and(|begun| begun.elapsed() > Duration::from_millis(700))
        {
            vec![self.pid, self.program.pid()]
        } else {
            vec![]
        }
    }
}

#[test]
fn a_process_that_the_keeper_names_later_joins_the_recording() {
    let _turn = one_at_a_time();
    let first = target(&["checksum", "1"]);
    let mut second = target(&["checksum", "100000"]);
    second.go();
    let plan = RecordPlan {
        pids: vec![first.pid()],
        duration: Some(Duration::from_secs(3)),
        ..Plan::on_cpu(RATE_HZ)
    };
    let mut keeper = Join {
        pid: first.pid(),
        begun: None,
        program: second,
    };
    let recorded = match throughline_record::record(&plan, Capture::default(), &mut keeper) {
        Ok(recorded) => recorded,
        Err(throughline_record::RecordError::Programs(error)) => {
            eprintln!("SKIPPED: ebpf: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let recording = Recording {
        profile: recorded.profile,
        threads: recorded.threads,
    };
    recording.assert_ledgers_balance();
    let pid = keeper.program.pid();
    let facts = recording
        .profile
        .capture
        .targets
        .iter()
        .find(|target| target.pid == pid)
        .expect("it joined");
    assert!(facts.joined.0 > 300_000_000, "{facts:?}");
    let samples = by_pid(&recording);
    let own = samples.get(&pid).map_or(0, Vec::len) as f64;
    let expected = facts.cpu_ns.expect("its CPU time") as f64 / 1e9 * f64::from(RATE_HZ);
    assert!(
        (own - expected).abs() <= 0.05 * expected + 3.0,
        "{own} samples, {expected} were due"
    );
    assert_complete(&recording);
}

/// Its processes are ended when the value is dropped.
struct Nginx {
    master: Child,
    directory: std::path::PathBuf,
}

const NGINX_CONF: &str = r#"
daemon off;
master_process on;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    init_worker_by_lua_block {
        local function burn_in_timer(premature)
            if premature then return end
            local x = 0
            for i = 1, 400000 do x = (x * 31 + i) % 1000003 end
            ngx.timer.at(0.002, burn_in_timer)
        end
        ngx.timer.at(0, burn_in_timer)
    }
    server { listen unix:{dir}/socket; }
}
"#;

impl Nginx {
    fn start() -> Option<Self> {
        if !Path::new("/usr/lib/nginx/modules/ngx_http_lua_module.so").exists() {
            eprintln!("SKIPPED: nginx-lua: its module is not installed");
            return None;
        }
        let directory = scratch().join("nginx");
        fs::create_dir_all(&directory).expect("the target directory can be written");
        let conf = directory.join("nginx.conf");
        fs::write(
            &conf,
            NGINX_CONF.replace("{dir}", &directory.to_string_lossy()),
        )
        .expect("it can be written");
        let _ = fs::remove_file(directory.join("socket"));
        let spawned = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "nginx", "-e"])
            .arg(directory.join("error.log"))
            .args(["-p"])
            .arg(&directory)
            .arg("-c")
            .arg(&conf)
            .stderr(Stdio::null())
            .spawn();
        match spawned {
            Ok(master) => Some(Self { master, directory }),
            Err(error) => {
                eprintln!("SKIPPED: nginx: {error}");
                None
            }
        }
    }

    /// Its workers, once there are any.
    fn workers(&self) -> BTreeSet<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.master.id());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found: BTreeSet<u32> = fs::read_to_string(&children)
                .unwrap_or_default()
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect();
            if !found.is_empty() {
                return found;
            }
            let log = fs::read_to_string(self.directory.join("error.log")).unwrap_or_default();
            assert!(Instant::now() < until, "nginx did not come up: {log}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn reload(&self) {
        signal(self.master.id(), "HUP");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        signal(self.master.id(), "TERM");
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.master.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}

fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

#[test]
fn new_workers_of_a_reload_join_and_old_ones_end() {
    let _turn = one_at_a_time();
    let Some(nginx) = Nginx::start() else { return };
    let old = nginx.workers();
    // The VM is looked for when the recording begins.
    thread::sleep(Duration::from_millis(500));
    let plan = RecordPlan {
        pids: old.iter().copied().collect(),
        duration: Some(Duration::from_secs(5)),
        ..Plan::both(RATE_HZ)
    };
    let mut reloaded = false;
    let recording = record(
        &plan,
        || (),
        |progress| {
            if progress.elapsed.0 > 1_500_000_000 && !reloaded {
                reloaded = true;
                nginx.reload();
            }
            false
        },
    );
    let Some(recording) = recording else { return };
    recording.assert_ledgers_balance();
    let new = nginx.workers();
    assert!(
        new.is_disjoint(&old),
        "the reload replaced {old:?} by {new:?}"
    );
    let targets = &recording.profile.capture.targets;
    let of = |pid: &u32| {
        targets
            .iter()
            .find(|target| target.pid == *pid)
            .unwrap_or_else(|| panic!("{pid} of {targets:?}"))
    };
    for pid in &old {
        assert!(of(pid).ended.is_some(), "{:?}", of(pid));
    }
    let samples = by_pid(&recording);
    for pid in old.iter().chain(&new) {
        let own = samples.get(pid).map_or(&[][..], Vec::as_slice);
        let lua = own
            .iter()
            .filter(|sample| recording.lua_function(sample).is_some())
            .count();
        eprintln!(
            "worker {pid}: {} samples, {lua} with Lua frames; {:?}",
            own.len(),
            of(pid)
        );
        assert!(own.len() > 100, "{} samples of {pid}", own.len());
        assert!(
            lua * 10 >= own.len() * 7,
            "{lua} of {} samples of {pid} have Lua frames",
            own.len()
        );
        assert_eq!(of(pid).lua_vms.len(), 1);
    }
    for pid in &new {
        assert!(
            of(pid).ended.is_none() && of(pid).joined.0 > 1_400_000_000,
            "{:?}",
            of(pid)
        );
    }
    assert!(
        !samples.contains_key(&nginx.master.id()),
        "the master was not asked for"
    );
    assert_complete(&recording);
}

/// Whether this machine lets a process be started in namespaces of its own.
fn namespaces() -> bool {
    let done = Command::new("unshare")
        .args(["--pid", "--mount", "--fork", "--mount-proc", "true"])
        .output();
    let fine = done.as_ref().is_ok_and(|output| output.status.success());
    if !fine {
        eprintln!("SKIPPED: namespaces: {done:?}");
    }
    fine
}

/// Runs inside a pid namespace: a recorder there records a process there, by the ids of that namespace.
#[test]
#[ignore = "started by the test below"]
fn inside_a_namespace() {
    if std::env::var_os("THROUGHLINE_TEST_NAMESPACE").is_none() {
        return;
    }
    assert!(std::process::id() < 100, "this is not a new pid namespace");
    let mut program = target(&["forks", "3", "0.3"]);
    let Some(recording) = record_to_the_end(Plan::both(RATE_HZ), &mut program) else {
        return;
    };
    recording.assert_ledgers_balance();
    assert_complete(&recording);
    let children: Vec<u32> = program
        .numbers()
        .iter()
        .filter(|(name, _)| name == "child")
        .map(|(_, pid)| *pid as u32)
        .collect();
    let samples = by_pid(&recording);
    for pid in children {
        assert!(
            samples.get(&pid).is_some_and(|own| own.len() > 100),
            "child {pid} of {:?}",
            samples.keys()
        );
    }
    assert!(
        recording
            .on_cpu()
            .all(|sample| recording.profile.threads.get(sample.thread).tid < 1000)
    );
    eprintln!("recorded inside");
}

#[test]
fn a_recorder_in_a_pid_namespace_records_by_the_ids_of_that_namespace() {
    if !namespaces() {
        return;
    }
    let _turn = one_at_a_time();
    let output = Command::new("timeout")
        .args([
            "-k",
            "5",
            "60",
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ])
        .arg(std::env::current_exe().expect("the test binary has a path"))
        .args(["--exact", "inside_a_namespace", "--ignored", "--nocapture"])
        .env("THROUGHLINE_TEST_NAMESPACE", "1")
        .output()
        .expect("unshare runs");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if complained.contains("SKIPPED:") {
        eprintln!("{complained}");
        return;
    }
    assert!(
        output.status.success() && complained.contains("recorded inside"),
        "{said}\n{complained}"
    );
}

/// A container as far as a recorder can tell: own pids, own mounts, program and perf map in a file system that only it sees.
#[test]
fn a_process_in_a_container_is_recorded_from_outside_with_its_files_and_its_perf_map() {
    if !namespaces() {
        return;
    }
    let _turn = one_at_a_time();
    let program = compile("targets.c", "targets", &[]);
    let script = "mount -t tmpfs none /tmp && cp \"$0\" /tmp/inside && exec /tmp/inside code 3";
    let mut container = Program::of_child(
        Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "unshare",
                "--pid",
                "--mount",
                "--fork",
                "--mount-proc",
                "--kill-child",
            ])
            .args(["sh", "-c", script])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs"),
    );
    let code = container.line();
    container.expect_line("ready");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.pid()))
        .expect("it has children");
    let pid: u32 = children
        .split_whitespace()
        .next()
        .expect("it has one")
        .parse()
        .expect("a process id");
    let (start, size) = code
        .strip_prefix("code ")
        .and_then(|code| code.split_once(' '))
        .expect("where its code is");
    // Its own process id in its namespace is 1.
    fs::write(
        format!("/proc/{pid}/root/tmp/perf-1.map"),
        format!("{start} {size} made at run time\n"),
    )
    .expect("its /tmp is a tmpfs");
    assert!(!Path::new("/tmp/inside").exists());
    let Some(recorder) = Recorder::start(&Order {
        pids: &[pid],
        seconds: 10.0,
        ..Order::default()
    }) else {
        return;
    };
    container.go();
    let outcome = recorder.finish();
    outcome.assert_sound();
    let (named, outer, all) = (
        outcome.holding("made at run time"),
        outcome.holding("machine_code"),
        outcome.number("on_cpu"),
    );
    eprintln!(
        "{all} samples, {named} in the perf map's code, {outer} under the function that calls it, {} complete",
        outcome.number("complete")
    );
    assert!(all > 1000);
    assert!(named * 100 >= all * 97 && outer * 100 >= all * 97);
    assert!(outcome.number("complete") * 100 >= all * 99);
    assert!(
        outcome.took < Duration::from_secs(30),
        "it ends with its target"
    );
}
