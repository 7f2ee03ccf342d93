//! The rule, on observations whose readings are chosen.

use std::collections::BTreeMap;

use serde_json::Value;
use throughline_evidence::{Holds, Verdict};
use throughline_host::{
    Absence, CoreActivity, CpuSet, CpuSource, Machine, NetworkActivity, Observation, PeerSource,
    Peers, Pressure, Process, ProcessActivity, Tenant, ThreadActivity, Virtualisation,
};

use super::{CheckReport, check};

const WINDOW_NS: u64 = 10_000_000_000;

fn absent<T>() -> Result<T, Absence> {
    Err(Absence::NotOffered("a fixture".to_owned()))
}

/// A thread that used `cpu` and waited `wait` of the window, pinned to a core.
fn thread(tid: u32, cpu: f64, wait: f64, core: u32) -> ThreadActivity {
    let cpu_ns = (cpu * WINDOW_NS as f64) as u64;
    ThreadActivity {
        tid,
        comm: format!("t{tid}"),
        window_ns: WINDOW_NS,
        cpu_ns,
        cpu_source: CpuSource::Schedstat,
        user_share_of_cpu: Ok(0.5),
        run_queue_wait_ns: Ok((wait * WINDOW_NS as f64) as u64),
        voluntary_switches: Ok(100),
        involuntary_switches: Ok(1),
        allowed: CpuSet::parse(core.to_string().as_bytes())
            .map_err(|problem| Absence::TooFew(problem.to_owned())),
        last_core: core,
        cpu_by_core_ns: BTreeMap::from([(core, cpu_ns)]),
        peak_share: Some(cpu),
        states: BTreeMap::new(),
        ended: false,
    }
}

fn process(pid: u32, comm: &str, threads: Vec<ThreadActivity>) -> ProcessActivity {
    ProcessActivity {
        process: Process {
            pid,
            comm: comm.to_owned(),
            exe: absent(),
            exe_deleted: false,
            parent: 1,
            start_ticks: 5,
            cgroups: absent(),
            threads: 1,
        },
        window_ns: WINDOW_NS,
        cpu_ns: threads.iter().map(|thread| thread.cpu_ns).sum(),
        cpu_by_ticks_ns: absent(),
        threads,
        threads_ended: 0,
        ended: false,
        started_in_window: false,
    }
}

fn peers(processes: Vec<ProcessActivity>) -> Peers {
    Peers {
        processes,
        source: PeerSource::FoundOnConnections,
        connections: Some(4),
        connections_elsewhere: Some(0),
        connections_within: Some(0),
        search_limits: Vec::new(),
    }
}

fn core(core: u32) -> CoreActivity {
    CoreActivity {
        core,
        ticks: 1000,
        user_share: 0.9,
        system_share: 0.1,
        idle_share: 0.0,
        iowait_share: 0.0,
        irq_share: 0.0,
        softirq_share: 0.0,
        steal_share: 0.0,
        went_backwards: Vec::new(),
    }
}

/// A gateway at `cpu` on core 0, with an upstream and a generator that have headroom.
fn gateway(cpu: f64, wait: f64) -> Observation {
    Observation {
        asked_ns: WINDOW_NS,
        window_ns: WINDOW_NS,
        looks: 9,
        looks_limited: None,
        targets: vec![process(10, "nginx", vec![thread(10, cpu, wait, 0)])],
        upstreams: peers(vec![process(20, "backend", vec![thread(20, 0.3, 0.01, 1)])]),
        load_generators: peers(vec![process(30, "wrk", vec![thread(30, 0.5, 0.01, 1)])]),
        tenants: Vec::new(),
        cores: Ok(vec![core(0), core(1)]),
        pressure: Pressure {
            cpu: absent(),
            io: absent(),
            memory: absent(),
        },
        softirqs: absent(),
        network: Ok(NetworkActivity {
            segments_sent: 10_000,
            segments_retransmitted: 0,
            connections_opened: 0,
            connections_accepted: 0,
            listen_overflows: 0,
            listen_drops: 0,
            syn_drops: 0,
            backlog_drops: 0,
            backlog_squeezes: 0,
        }),
        frequency: absent(),
        memory: absent(),
        machine: Machine {
            kernel: "6.1".to_owned(),
            processor: "x".to_owned(),
            virtualisation: Virtualisation::NoneSeen,
            evidence: Vec::new(),
        },
    }
}

fn holds(report: &CheckReport, name: &str) -> Holds {
    report
        .conditions
        .iter()
        .find(|condition| condition.name == name)
        .unwrap()
        .holds
        .clone()
}

#[test]
fn the_thresholds_belong_to_the_graph_they_name() {
    for (cpu, verdict) in [
        (0.97, Verdict::OnCpu),
        (0.80, Verdict::OnCpu),
        (0.79, Verdict::Both),
        (0.41, Verdict::Both),
        (0.40, Verdict::OffCpu),
        (0.05, Verdict::OffCpu),
    ] {
        let report = check(&gateway(cpu, 0.0));
        assert_eq!((report.verdict, report.exit_code()), (verdict, 0), "{cpu}");
        assert_eq!(
            holds(&report, "worker_saturated") == Holds::Yes,
            cpu >= 0.80
        );
    }
}

#[test]
fn low_throughput_without_headroom_names_generator_and_upstream_first() {
    let mut observation = gateway(0.3, 0.0);
    observation.load_generators = peers(vec![process(
        30,
        "wrk",
        vec![thread(31, 0.1, 0.0, 1), thread(30, 0.98, 0.0, 1)],
    )]);
    observation.upstreams = peers(vec![process(20, "backend", vec![thread(20, 0.6, 0.2, 1)])]);
    let report = check(&observation);
    assert_eq!(
        (report.verdict, report.exit_code()),
        (Verdict::NotExplainable, 1)
    );
    assert!(report.check_first[0].contains("load generator has no headroom"));
    assert!(report.check_first[1].contains("upstream has no headroom"));
    // 0.6 on a core and 0.2 waiting for one: it wanted 0.8.
    let upstream = report
        .conditions
        .iter()
        .find(|condition| condition.name == "upstream_headroom")
        .unwrap();
    assert!((upstream.reading.unwrap() - 0.8).abs() < 1e-9);
}

#[test]
fn peers_out_of_sight_are_unknown_and_not_in_order() {
    let mut observation = gateway(0.3, 0.0);
    observation.load_generators = Peers {
        connections_elsewhere: Some(4),
        ..peers(Vec::new())
    };
    let report = check(&observation);
    assert!(matches!(
        holds(&report, "load_generator_headroom"),
        Holds::Unknown(_)
    ));
    assert_eq!(report.verdict, Verdict::OffCpu);
    assert!(
        report.check_first[0].contains("load generator's headroom is unknown"),
        "{:?}",
        report.check_first
    );
    assert!(
        report
            .boundaries
            .iter()
            .any(|boundary| boundary.0.contains("load_generator_headroom"))
    );
}

#[test]
fn what_fails_comes_before_what_is_unknown() {
    let mut observation = gateway(0.5, 0.4);
    observation.load_generators = peers(Vec::new());
    let report = check(&observation);
    assert!(
        report.check_first[0].contains("waited for a core"),
        "{:?}",
        report.check_first
    );
    assert!(report.check_first[1].contains("load generator's headroom is unknown"));
}

#[test]
fn a_gateway_that_calls_itself_has_no_upstream_to_measure() {
    let mut observation = gateway(0.9, 0.0);
    observation.upstreams = Peers {
        connections_within: Some(4),
        ..peers(Vec::new())
    };
    let Holds::Unknown(reason) = holds(&check(&observation), "upstream_headroom") else {
        panic!("a target is not its own upstream");
    };
    assert!(reason.contains("targets themselves"), "{reason}");
}

#[test]
fn a_worker_that_waits_for_its_core_is_not_explained_and_the_tenant_is_named() {
    let mut observation = gateway(0.85, 0.14);
    let tenant = |pid: u32, comm: &str, on: u32, cores: f64| Tenant {
        pid,
        comm: comm.to_owned(),
        role: None,
        cpu_cores: cores,
        by_core: BTreeMap::from([(on, cores)]),
        allowed: absent(),
    };
    observation.tenants = vec![
        tenant(10, "nginx", 0, 0.85),
        tenant(99, "backup", 0, 0.14),
        tenant(98, "elsewhere", 1, 0.9),
    ];
    let report = check(&observation);
    assert_eq!(report.verdict, Verdict::NotExplainable);
    let advice = &report.check_first[0];
    assert!(advice.contains("backup (pid 99) 0.14"), "{advice}");
    // Neither a tenant of another core nor the worker itself is its neighbour.
    assert!(
        !advice.contains("elsewhere") && !advice.contains("pid 10) 0.85"),
        "{advice}"
    );
}

#[test]
fn a_blocked_worker_is_explained_by_its_blocks_although_it_waits_for_a_core_now_and_then() {
    let report = check(&gateway(0.2, 0.08));
    assert_eq!(holds(&report, "run_queue_wait"), Holds::No);
    assert_eq!(report.verdict, Verdict::OffCpu);
    assert_eq!(check(&gateway(0.35, 0.08)).verdict, Verdict::NotExplainable);
}

#[test]
fn an_idle_target_has_nothing_to_explain() {
    let mut observation = gateway(0.001, 0.0);
    observation.load_generators = peers(Vec::new());
    let report = check(&observation);
    assert_eq!(
        (report.verdict, report.exit_code()),
        (Verdict::NotExplainable, 1)
    );
    assert!(report.check_first[0].contains("No work reached the worker"));
    // With a generator at work the same worker is blocked, not idle.
    assert_eq!(check(&gateway(0.001, 0.0)).verdict, Verdict::OffCpu);
}

#[test]
fn many_threads_none_of_them_bound_take_both_graphs() {
    let mut observation = gateway(0.3, 0.0);
    let threads = (0..6).map(|tid| ThreadActivity {
        allowed: Ok(CpuSet::parse(b"0-15").unwrap()),
        ..thread(100 + tid, 0.3, 0.0, 0)
    });
    observation.targets = vec![process(100, "pool", threads.collect())];
    observation.cores = Ok((0..16).map(core).collect());
    // 1.8 cores of 16, no thread over 0.3.
    assert_eq!(check(&observation).verdict, Verdict::Both);
    observation.cores = Ok((0..2).map(core).collect());
    // 1.8 of the 2 cores there are: the process is bound.
    assert_eq!(check(&observation).verdict, Verdict::OnCpu);
}

#[test]
fn stolen_cores_and_lost_segments_take_the_verdict_away() {
    let mut observation = gateway(0.9, 0.0);
    observation.cores = Ok(vec![
        CoreActivity {
            steal_share: 0.2,
            ..core(0)
        },
        core(1),
    ]);
    assert_eq!(check(&observation).verdict, Verdict::NotExplainable);
    let mut observation = gateway(0.9, 0.0);
    if let Ok(network) = &mut observation.network {
        network.segments_retransmitted = 300;
    }
    assert_eq!(check(&observation).verdict, Verdict::NotExplainable);
}

#[test]
fn a_desktops_virtual_machine_is_named_invalid_for_comparison() {
    let mut observation = gateway(0.9, 0.0);
    observation.machine.virtualisation = Virtualisation::DesktopVm;
    observation.machine.evidence = vec!["\"virtualbox\" in DMI".to_owned()];
    let report = check(&observation);
    assert_eq!(report.verdict, Verdict::OnCpu);
    assert_eq!(
        report.to_json()["environment"]["valid_for_comparison"],
        Value::Bool(false)
    );
    assert!(
        report
            .check_first
            .iter()
            .any(|line| line.contains("do not carry over"))
    );
}

#[test]
fn ended_targets_and_short_windows_are_no_data() {
    let mut observation = gateway(0.9, 0.0);
    observation.targets[0].ended = true;
    assert_eq!(check(&observation).exit_code(), 3);
    let mut observation = gateway(0.9, 0.0);
    observation.targets[0].threads[0].window_ns = 999_999_999;
    assert_eq!(check(&observation).exit_code(), 3);
    let mut observation = gateway(0.9, 0.0);
    observation.targets[0].threads.clear();
    let report = check(&observation);
    assert_eq!(report.exit_code(), 3);
    assert_every_null_has_its_reason(&report.to_json(), "");
}

#[test]
fn the_document_has_its_stable_names_and_a_reason_beside_every_null() {
    let document = check(&gateway(0.97, 0.01)).to_json();
    assert_eq!(document["verdict"], "on_cpu");
    assert!(document["check_first"].is_array());
    let names: Vec<&str> = document["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(
        names[..5],
        [
            "worker_saturated",
            "upstream_headroom",
            "load_generator_headroom",
            "run_queue_wait",
            "error_rate_stable"
        ]
    );
    assert_eq!(document["conditions"][0]["unit"], "core");
    assert_eq!(document["schema"], "check/1");
    assert_every_null_has_its_reason(&document, "");
}

fn assert_every_null_has_its_reason(value: &Value, path: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                if value.is_null() {
                    assert!(
                        map.get(&format!("{key}_reason"))
                            .is_some_and(Value::is_string),
                        "{path}"
                    );
                }
                assert_every_null_has_its_reason(value, &path);
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| assert_every_null_has_its_reason(value, path)),
        _ => {}
    }
}

#[test]
fn no_line_of_text_has_a_control_character() {
    for observation in [gateway(0.97, 0.01), gateway(0.2, 0.2)] {
        for line in check(&observation).text_lines() {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
