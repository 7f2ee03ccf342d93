//! The labs against what they promise: real nginx, real load, a few seconds each.

mod support;

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::*;

const LABS: [&str; 3] = ["global-rules", "log-bypass", "sync-log"];

fn expected(lab: &str) -> toml::Table {
    let path = format!(
        "{}/../../lab/{lab}/expected.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::read_to_string(path).unwrap().parse().unwrap()
}

fn number(table: &toml::Table, section: &str, field: &str) -> f64 {
    match &table[section][field] {
        toml::Value::Float(value) => *value,
        toml::Value::Integer(value) => *value as f64,
        other => panic!("{section}.{field} is {other}"),
    }
}

#[test]
fn the_ready_line_names_the_processes_and_the_closing_line_counts() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    for name in LABS {
        let lab = Lab::start(&[name, "--for", "2"]);
        assert_eq!(lab.ready["lab"], name);
        assert_eq!(lab.ready["fixed"], false);
        assert_eq!(lab.ready["ready"], true);
        let workers = lab.pids("workers");
        for (index, &worker) in workers.iter().enumerate() {
            assert_eq!(status_field(worker, "Name"), "nginx");
            assert_eq!(status_field(worker, "PPid"), lab.master().to_string());
            let core = lab.ready["cores"]["workers"][index].to_string();
            assert_eq!(status_field(worker, "Cpus_allowed_list"), core);
        }
        assert_eq!(workers.len(), if name == "sync-log" { 2 } else { 1 });
        assert_eq!(
            lab.pids("upstream").len(),
            if name == "global-rules" { 1 } else { 0 }
        );
        let load = lab.pids("load");
        assert_eq!(load.len(), 1);
        assert_ne!(load[0], lab.runner.id());
        let load_core = lab.ready["cores"]["load"].to_string();
        // Pinned is the generating thread; the other one waits for the end of the input.
        assert_eq!(status_field(load[0], "Cpus_allowed_list"), load_core);

        let (all, directory) = (lab.all_pids(), lab.directory());
        assert!(directory.is_dir());
        let summary = lab.finish();
        assert!(
            summary["requests"].as_u64().unwrap() > 10,
            "{name}: {summary}"
        );
        assert_eq!(summary["errors"], 0, "{name}: {summary}");
        assert!(
            summary["req_per_s"].as_f64().unwrap() > 5.0,
            "{name}: {summary}"
        );
        assert!(
            summary["worker_cpu_us_per_request"].as_f64().unwrap() > 1.0,
            "{name}: {summary}"
        );
        assert_eq!(
            await_end(&all, Duration::ZERO),
            Vec::<u32>::new(),
            "{name} left processes"
        );
        assert!(!directory.exists(), "{name} left its directory");
    }
}

/// CPU per request and throughput of the repaired lab, as ratios to the faulty one. The runs
/// alternate, so that what else the machine does falls on both.
fn repair_ratios(name: &str, pairs: usize) -> (f64, f64, Vec<Value>) {
    let mut cpu_us = [0.0; 2];
    let mut per_s = [0.0; 2];
    let mut faulty = Vec::new();
    for pair in 0..pairs {
        let order = if pair % 2 == 0 {
            [false, true]
        } else {
            [true, false]
        };
        for fixed in order {
            let mut arguments = vec![name, "--for", "2"];
            if fixed {
                arguments.push("--fixed");
            }
            let summary = run(&arguments);
            assert_eq!(summary["errors"], 0, "{summary}");
            cpu_us[usize::from(fixed)] += summary["worker_cpu_us_per_request"].as_f64().unwrap();
            per_s[usize::from(fixed)] += summary["req_per_s"].as_f64().unwrap();
            if !fixed {
                faulty.push(summary);
            }
        }
    }
    let ratios = (cpu_us[1] / cpu_us[0], per_s[1] / per_s[0]);
    eprintln!(
        "{name}: repaired costs {:.3} of the CPU, throughput x {:.2}",
        ratios.0, ratios.1
    );
    (ratios.0, ratios.1, faulty)
}

#[test]
fn reusing_the_list_of_plugins_saves_a_considerable_share_of_the_workers_cpu() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let (cpu, _, _) = repair_ratios("global-rules", 5);
    let limit = number(
        &expected("global-rules"),
        "fixed",
        "cpu_us_per_request_ratio_max",
    );
    assert!(cpu <= limit, "{cpu} of the CPU, at most {limit} expected");
}

#[test]
fn looking_at_the_level_first_saves_most_of_the_workers_cpu() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let (cpu, _, _) = repair_ratios("log-bypass", 2);
    let limit = number(
        &expected("log-bypass"),
        "fixed",
        "cpu_us_per_request_ratio_max",
    );
    assert!(cpu <= limit, "{cpu} of the CPU, at most {limit} expected");
}

#[test]
fn waiting_for_the_log_stalls_workers_that_have_cpu_to_spare() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let expected = expected("sync-log");
    let (cpu, throughput, faulty) = repair_ratios("sync-log", 2);
    assert!(
        cpu <= number(&expected, "fixed", "cpu_us_per_request_ratio_max"),
        "{cpu}"
    );
    assert!(
        throughput >= number(&expected, "fixed", "throughput_ratio_min"),
        "{throughput}"
    );
    for summary in faulty {
        for share in summary["worker_cpu_share"].as_array().unwrap() {
            let share = share.as_f64().unwrap();
            assert!(
                share <= number(&expected, "worker", "cpu_share_max"),
                "{summary}"
            );
        }
    }
}

#[test]
fn the_workers_of_sync_log_sleep_in_the_write_path_and_not_in_epoll() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let lab = Lab::start(&["sync-log", "--for", "3"]);
    let mut blocked = 0;
    let mut idle = 0;
    for _ in 0..400 {
        for worker in lab.pids("workers") {
            let Ok(stack) = fs::read_to_string(format!("/proc/{worker}/stack")) else {
                continue;
            };
            if stack.contains("flock") || stack.contains("sync") {
                blocked += 1;
            } else if stack.contains("epoll") {
                idle += 1;
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    lab.finish();
    if blocked + idle == 0 {
        eprintln!("SKIPPED: kernel stacks: /proc/PID/stack shows none here");
        return;
    }
    assert!(
        blocked > 10 * idle,
        "{blocked} looks found a wait for the log, {idle} one for events"
    );
}

/// Lua that leaves one byte in a file for each call of a function of a module, installed before
/// anything else has loaded the module.
fn counting_prelude(module: &str, function: &str, counter: &str) -> String {
    format!(
        "local module = require('{module}')\n\
         local inner = module.{function}\n\
         module.{function} = function(...)\n\
             local file = io.open('{counter}', 'a')\n\
             file:write('x')\n\
             file:close()\n\
             return inner(...)\n\
         end\n"
    )
}

#[test]
fn filter_runs_nine_times_per_request_and_once_when_its_list_is_reused() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let expected = expected("global-rules");
    for (fixed, field) in [(false, "per_request"), (true, "per_request_fixed")] {
        let scratch = tempfile::tempdir().unwrap();
        let counter = scratch.path().join("calls");
        let prelude = scratch.path().join("prelude.lua");
        let code = counting_prelude("gateway.plugin", "filter", counter.to_str().unwrap());
        fs::write(&prelude, code).unwrap();
        let mut arguments = vec![
            "global-rules",
            "--load",
            "none",
            "--prelude",
            prelude.to_str().unwrap(),
        ];
        if fixed {
            arguments.push("--fixed");
        }
        let lab = Lab::start(&arguments);
        let settled = || {
            // The log phase runs after the answer has gone out.
            thread::sleep(Duration::from_millis(200));
            fs::metadata(&counter).map_or(0, |metadata| metadata.len())
        };
        let before = settled();
        const REQUESTS: u32 = 20;
        for _ in 0..REQUESTS {
            get(lab.ready["url"].as_str().unwrap());
        }
        let calls = settled() - before;
        assert_eq!(
            calls as f64 / f64::from(REQUESTS),
            number(&expected, "calls", field)
        );
        lab.signal("TERM");
        let summary = lab.finish();
        for field in [
            "requests",
            "errors",
            "req_per_s",
            "worker_cpu_us_per_request",
        ] {
            assert_eq!(summary[field], Value::Null);
            assert!(summary[format!("{field}_reason")].is_string());
        }
    }
}

#[test]
fn the_repair_changes_no_answer() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    for name in LABS {
        let answers: Vec<_> = [&[][..], &["--fixed"]]
            .into_iter()
            .map(|fixed| {
                let lab = Lab::start(&[&[name, "--load", "none"], fixed].concat());
                get(lab.ready["url"].as_str().unwrap())
            })
            .collect();
        assert_eq!(answers[0], answers[1], "{name}");
        assert_eq!(answers[0].0[0], "HTTP/1.1 200 OK");
    }
}

#[test]
fn the_repaired_log_holds_the_same_records() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let logs: Vec<Vec<(String, String)>> = [&[][..], &["--fixed"]]
        .into_iter()
        .map(|fixed| {
            let lab =
                Lab::start(&[&["sync-log", "--load", "none", "--workers", "1"], fixed].concat());
            for _ in 0..10 {
                get(lab.ready["url"].as_str().unwrap());
            }
            // Longer than the interval of the flush.
            thread::sleep(Duration::from_millis(1500));
            let text = fs::read_to_string(lab.directory().join("audit.log")).unwrap();
            let record = |line: &str| {
                let record: Value = serde_json::from_str(line).unwrap();
                let field = |name: &str| record[name].as_str().unwrap().to_owned();
                (field("event"), field("detail"))
            };
            text.lines().map(record).collect()
        })
        .collect();
    // Ten requests and the one by which the runner saw that nginx is up, five records each.
    assert_eq!(logs[0].len(), 55);
    assert_eq!(logs[0], logs[1]);
}

#[test]
fn nothing_survives_the_runner_however_it_ends() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    for name in LABS {
        for signal in ["KILL", "TERM", "INT"] {
            let mut lab = Lab::start(&[name]);
            let all = lab.all_pids();
            assert!(all.len() >= 3, "{all:?}");
            lab.signal(signal);
            lab.runner.wait().unwrap();
            // After SIGTERM the runner has waited for all; after SIGKILL the kernel tells them.
            let limit = Duration::from_secs(if signal == "KILL" { 5 } else { 0 });
            assert_eq!(
                await_end(&all, limit),
                Vec::<u32>::new(),
                "{name} after SIG{signal}"
            );
            if signal == "KILL" {
                // Nobody was left to remove it.
                fs::remove_dir_all(lab.directory()).unwrap();
            }
        }
    }
}

#[test]
fn a_reload_brings_new_workers_and_the_end_finds_them() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let lab = Lab::start(&["global-rules", "--load", "200", "--for", "4"]);
    let before = children(lab.master());
    signal(lab.master(), "HUP");
    assert_eq!(
        await_end(&before, Duration::from_secs(3)),
        Vec::<u32>::new()
    );
    let after = children(lab.master());
    let after: Vec<u32> = after.into_iter().filter(|&pid| is_alive(pid)).collect();
    assert!(
        after.len() == 1 && !before.contains(&after[0]),
        "{before:?} {after:?}"
    );
    let all = lab.all_pids();
    let summary = lab.finish();
    assert!(summary["requests"].as_u64().unwrap() > 500, "{summary}");
    assert_eq!(
        summary["worker_cpu_share"].as_array().unwrap().len(),
        2,
        "{summary}"
    );
    assert_eq!(await_end(&all, Duration::ZERO), Vec::<u32>::new());
}

#[test]
fn ports_in_use_are_passed_over() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let lab = Lab::start(&[
        "global-rules",
        "--load",
        "none",
        "--port",
        &port.to_string(),
    ]);
    let url = lab.ready["url"].as_str().unwrap();
    assert!(!url.ends_with(&format!(":{port}/")), "{url}");
    assert_eq!(get(url).0[0], "HTTP/1.1 200 OK");
}

#[test]
fn a_rate_is_kept_below_capacity() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    let summary = run(&["global-rules", "--load", "500", "--for", "2"]);
    assert_eq!(summary["errors"], 0);
    let requests = summary["requests"].as_u64().unwrap();
    assert!((990..=1001).contains(&requests), "{summary}");
}

#[test]
fn every_obstacle_is_told_with_its_remedy() {
    let _alone = one_at_a_time();
    let blocked: &[(&[&str], &str)] = &[
        (
            &["global-rules", "--nginx", "/nonexistent/nginx"],
            "apt-get install nginx",
        ),
        (
            &["global-rules", "--nginx", "/bin/true"],
            "does not answer like nginx",
        ),
        (
            &["no-such-lab"],
            "there are: global-rules, log-bypass, sync-log",
        ),
        (&["global-rules", "--workers", "0"], "between 1 and 64"),
        (&["global-rules", "--load", "-5"], "above 0"),
        (
            &["sync-log", "--dir", "/dev/shm"],
            "choose a directory on a disk",
        ),
        (
            &["global-rules", "--dir", "/nonexistent/place"],
            "/nonexistent/place",
        ),
    ];
    for (arguments, remedy) in blocked {
        let output = Command::new(example())
            .arg("run")
            .args(*arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{arguments:?}"
        );
        if text.contains("apt-get install") && !arguments.contains(&"--nginx") {
            eprintln!("SKIPPED: nginx: {text}");
            continue;
        }
        assert!(text.contains(remedy), "{arguments:?}: {text}");
    }
}

#[test]
fn workers_do_not_survive_a_master_that_dies_under_the_runner() {
    let _alone = one_at_a_time();
    if !can_run_labs() {
        return;
    }
    for signal_name in ["TERM", "KILL"] {
        let mut lab = Lab::start(&["global-rules", "--load", "none"]);
        let all = lab.all_pids();
        signal(lab.master(), signal_name);
        let status = lab.runner.wait().unwrap();
        assert!(!status.success());
        assert_eq!(
            await_end(&all, Duration::ZERO),
            Vec::<u32>::new(),
            "SIG{signal_name}"
        );
    }
}
