//! The report as the document of `check --json`. Sections that could not be read are `null` beside their `..._reason`.

use serde::Serialize;
use serde_json::{Map, Value, json};
use throughline_host::{Peers, ProcessActivity, Reading, ThreadActivity, Virtualisation};

use super::{CheckReport, conditions};

/// Threads written for one process; the rest are counted.
const MOST_THREADS: usize = 64;
/// Tenants written; the rest are counted.
const MOST_TENANTS: usize = 32;

impl CheckReport {
    /// The document of `check --json`. Shares are fractions of one core or of the window their object names.
    pub fn to_json(&self) -> Value {
        let seen = &self.observation;
        let mut document = Map::new();
        let mut put = |key: &str, value: Value| _ = document.insert(key.to_owned(), value);
        put("schema", json!("check/1"));
        put("tool", json!(env!("CARGO_PKG_VERSION")));
        put("verdict", json!(self.verdict));
        put("exit_code", json!(self.exit_code()));
        put("no_data", json!(self.no_data.is_some()));
        if let Some(reason) = &self.no_data {
            put("no_data_reason", json!(reason));
        }
        put("conditions", json!(self.conditions));
        put("check_first", json!(self.check_first));
        put("claims", json!(self.claims));
        put("boundaries", json!(self.boundaries));
        put(
            "window",
            json!({"asked_ns": seen.asked_ns, "measured_ns": seen.window_ns, "looks": seen.looks}),
        );
        put("denominators", self.denominators());
        put("targets", seen.targets.iter().map(process).collect());
        put("upstreams", peers(&seen.upstreams));
        put("load_generators", peers(&seen.load_generators));
        self.put_worker(&mut document);
        self.put_machine(&mut document);
        Value::Object(document)
    }

    fn denominators(&self) -> Value {
        json!({
            "window_ns": self.observation.window_ns,
            "requests": null,
            "requests_reason": "requests were not counted, so nothing is divided by them",
        })
    }

    fn put_worker(&self, document: &mut Map<String, Value>) {
        let Some(worker) = &self.worker else {
            document.insert("worker".to_owned(), Value::Null);
            let reason = self
                .no_data
                .as_deref()
                .unwrap_or("no thread was read twice");
            document.insert("worker_reason".to_owned(), json!(reason));
            document.insert("core_tenants".to_owned(), json!([]));
            return;
        };
        let mut value = Map::new();
        value.insert("pid".to_owned(), json!(worker.pid));
        value.insert("tid".to_owned(), json!(worker.tid));
        value.insert("comm".to_owned(), json!(worker.comm));
        value.insert("window_ns".to_owned(), json!(worker.window_ns));
        value.insert("cpu_share".to_owned(), json!(worker.cpu_share));
        value.insert(
            "process_cpu_cores".to_owned(),
            json!(worker.process_cpu_cores),
        );
        put_reading(&mut value, "run_queue_wait_share", &worker.wait_share);
        put_reading(&mut value, "allowed_cores", &worker.allowed);
        document.insert("worker".to_owned(), Value::Object(value));
        let tenants = conditions::tenants_of(&self.observation, worker);
        let written: Vec<Value> = tenants
            .iter()
            .take(MOST_TENANTS)
            .map(|(tenant, cores)| {
                json!({"pid": tenant.pid, "comm": tenant.comm, "role": role(tenant.role), "cpu_cores": tenant.cpu_cores,
                       "cpu_cores_on_worker_cores": cores, "by_core": tenant.by_core})
            })
            .collect();
        document.insert("core_tenants".to_owned(), Value::Array(written));
        document.insert("core_tenants_total".to_owned(), json!(tenants.len()));
    }

    fn put_machine(&self, document: &mut Map<String, Value>) {
        let seen = &self.observation;
        put_reading(document, "cores", &seen.cores);
        put_reading(document, "softirqs", &seen.softirqs);
        put_reading(document, "network", &seen.network);
        put_reading(document, "cpu_frequency", &seen.frequency);
        put_reading(document, "memory", &seen.memory);
        let mut pressure = Map::new();
        put_reading(&mut pressure, "cpu", &seen.pressure.cpu);
        put_reading(&mut pressure, "io", &seen.pressure.io);
        put_reading(&mut pressure, "memory", &seen.pressure.memory);
        document.insert("pressure".to_owned(), Value::Object(pressure));
        let mut environment = Map::new();
        environment.insert("machine".to_owned(), json!(seen.machine));
        let desktop = seen.machine.virtualisation == Virtualisation::DesktopVm;
        environment.insert("valid_for_comparison".to_owned(), json!(!desktop));
        document.insert("environment".to_owned(), Value::Object(environment));
    }
}

impl Serialize for CheckReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

fn role(role: Option<throughline_host::Role>) -> Value {
    role.map_or_else(|| json!("other"), |role| json!(role))
}

/// Writes a reading, or `null` and why.
fn put_reading<T: Serialize>(into: &mut Map<String, Value>, key: &str, reading: &Reading<T>) {
    match reading {
        Ok(value) => _ = into.insert(key.to_owned(), json!(value)),
        Err(absence) => {
            into.insert(key.to_owned(), Value::Null);
            into.insert(format!("{key}_reason"), json!(absence.to_string()));
        }
    }
}

fn peers(peers: &Peers) -> Value {
    let mut value = Map::new();
    value.insert("source".to_owned(), json!(peers.source));
    for (key, count) in [
        ("connections", peers.connections),
        ("connections_elsewhere", peers.connections_elsewhere),
        ("connections_within_targets", peers.connections_within),
    ] {
        value.insert(key.to_owned(), json!(count));
        if count.is_none() {
            value.insert(
                format!("{key}_reason"),
                json!("the pids were given, connections were not searched"),
            );
        }
    }
    value.insert("search_limits".to_owned(), json!(peers.search_limits));
    value.insert(
        "processes".to_owned(),
        peers.processes.iter().map(process).collect(),
    );
    Value::Object(value)
}

fn process(activity: &ProcessActivity) -> Value {
    let mut value = Map::new();
    value.insert("pid".to_owned(), json!(activity.process.pid));
    value.insert("comm".to_owned(), json!(activity.process.comm));
    let exe = activity
        .process
        .exe
        .as_ref()
        .map(|path| path.to_string_lossy().into_owned())
        .map_err(Clone::clone);
    put_reading(&mut value, "exe", &exe);
    value.insert("window_ns".to_owned(), json!(activity.window_ns));
    value.insert("cpu_cores".to_owned(), json!(activity.cpu_cores()));
    put_reading(&mut value, "cpu_by_ticks_ns", &activity.cpu_by_ticks_ns);
    value.insert("ended".to_owned(), json!(activity.ended));
    value.insert(
        "started_in_window".to_owned(),
        json!(activity.started_in_window),
    );
    value.insert("threads_total".to_owned(), json!(activity.threads.len()));
    value.insert("threads_ended".to_owned(), json!(activity.threads_ended));
    value.insert(
        "threads".to_owned(),
        activity
            .threads
            .iter()
            .take(MOST_THREADS)
            .map(thread)
            .collect(),
    );
    Value::Object(value)
}

fn thread(thread: &ThreadActivity) -> Value {
    let mut value = Map::new();
    value.insert("tid".to_owned(), json!(thread.tid));
    value.insert("comm".to_owned(), json!(thread.comm));
    value.insert("window_ns".to_owned(), json!(thread.window_ns));
    value.insert("cpu_ns".to_owned(), json!(thread.cpu_ns));
    value.insert("cpu_share".to_owned(), json!(thread.cpu_share()));
    value.insert("cpu_source".to_owned(), json!(thread.cpu_source));
    put_reading(&mut value, "user_share_of_cpu", &thread.user_share_of_cpu);
    put_reading(&mut value, "run_queue_wait_ns", &thread.run_queue_wait_ns);
    put_reading(&mut value, "run_queue_wait_share", &thread.wait_share());
    put_reading(&mut value, "voluntary_switches", &thread.voluntary_switches);
    put_reading(
        &mut value,
        "involuntary_switches",
        &thread.involuntary_switches,
    );
    put_reading(&mut value, "allowed_cores", &thread.allowed);
    value.insert("last_core".to_owned(), json!(thread.last_core));
    value.insert("cpu_by_core_ns".to_owned(), json!(thread.cpu_by_core_ns));
    value.insert("peak_share".to_owned(), json!(thread.peak_share));
    if thread.peak_share.is_none() {
        value.insert(
            "peak_share_reason".to_owned(),
            json!("the thread was looked at once"),
        );
    }
    value.insert("states_seen".to_owned(), json!(thread.states));
    value.insert("ended".to_owned(), json!(thread.ended));
    Value::Object(value)
}
