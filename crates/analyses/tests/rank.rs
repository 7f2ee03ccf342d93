//! The ranking of profiles whose answer is arithmetic.

use serde_json::{Value, json};
use throughline_analyses::rank::{
    FEWEST_SAMPLES, NotEnoughData, RankBy, RankPlan, RankReport, rank, render,
};
use throughline_profile::{
    Capture, CaptureKind, Frame, FrameId, FrameKind, LuaContext, Module, OffCpu, Profile, Sample,
    SampleKind, SwitchReason, Thread, ThreadId,
};
use throughline_units::Nanos;

const PLAN: RankPlan = RankPlan {
    kind: CaptureKind::OnCpu,
    by: RankBy::SelfWeight,
    limit: None,
    pid: None,
};

const OFF_CPU: RankPlan = RankPlan {
    kind: CaptureKind::OffCpu,
    ..PLAN
};

/// A profile under construction.
struct Maker {
    profile: Profile,
}

impl Maker {
    fn new() -> Self {
        Self {
            profile: Profile {
                capture: Capture {
                    number: 3,
                    kinds: vec![CaptureKind::OnCpu, CaptureKind::OffCpu],
                    rate_hz: 99,
                    duration: Nanos(30_000_000_000),
                    min_block_ns: 1_000_000,
                    max_block_ns: 5_000_000_000,
                    complete: true,
                    ..Capture::default()
                },
                ..Profile::default()
            },
        }
    }

    fn frame(&mut self, kind: FrameKind, name: &str) -> FrameId {
        let name = self.profile.strings.intern(name);
        self.profile.frames.intern(Frame::new(kind, name))
    }

    fn native(&mut self, name: &str, path: &str) -> FrameId {
        let path = self.profile.strings.intern(path);
        let module = Module {
            path,
            build_id: None,
        };
        let name = self.profile.strings.intern(name);
        let mut frame = Frame::new(FrameKind::Native, name);
        frame.module = Some(self.profile.modules.intern(module));
        self.profile.frames.intern(frame)
    }

    fn lua(&mut self, name: &str, chunk: &str, first_line: u32, line: u32) -> FrameId {
        let name = self.profile.strings.intern(name);
        let mut frame = Frame::new(FrameKind::Lua, name);
        frame.source = Some(self.profile.strings.intern(chunk));
        frame.first_line = first_line;
        frame.line = line;
        self.profile.frames.intern(frame)
    }

    fn thread(&mut self, pid: u32, tid: u32, comm: &str) -> ThreadId {
        let comm = self.profile.strings.intern(comm);
        self.profile.threads.intern(Thread {
            pid,
            tid,
            comm,
            start_ns: None,
        })
    }

    fn sample(&mut self, pid: u32, root_first: &[FrameId], lua: LuaContext, kind: SampleKind) {
        let thread = self.thread(pid, pid, "nginx");
        let stack = self.profile.stacks.push_all(root_first.iter().copied());
        let sample = Sample::on_cpu(Nanos(0), thread, stack);
        self.profile.samples.push(Sample {
            lua,
            kind,
            ..sample
        });
    }

    fn on_cpu(&mut self, count: usize, root_first: &[FrameId], lua: LuaContext) {
        for _ in 0..count {
            self.sample(7, root_first, lua, SampleKind::OnCpu);
        }
    }

    fn off_cpu(&mut self, ms: u64, root_first: &[FrameId], lua: LuaContext, how: Off) {
        let off = OffCpu {
            duration: Nanos(ms * 1_000_000),
            runnable: how.runnable_ms.map(|ms| Nanos(ms * 1_000_000)),
            reason: how.reason,
            waker: how.waker,
            idle: how.idle,
        };
        self.sample(7, root_first, lua, SampleKind::OffCpu(off));
    }
}

#[derive(Clone, Copy)]
struct Off {
    runnable_ms: Option<u64>,
    reason: SwitchReason,
    waker: Option<ThreadId>,
    idle: bool,
}

const BLOCKED: Off = Off {
    runnable_ms: None,
    reason: SwitchReason::Voluntary,
    waker: None,
    idle: false,
};

/// 200 samples: 60 + 90 + 10 with Lua, 30 outside Lua, 10 without a stack.
fn gateway() -> Maker {
    let mut m = Maker::new();
    let main = m.native("main", "/usr/sbin/nginx");
    let handler = m.lua("handler", "@a.lua", 10, 12);
    let filter = m.lua("filter", "@plugin.lua", 578, 581);
    let filter_again = m.lua("filter", "@plugin.lua", 578, 590);
    let find = m.frame(FrameKind::LuaBuiltin, "string.find");
    let tab_get = m.native("lj_tab_get", "/usr/lib/libluajit-5.1.so.2");
    let tgets = m.frame(FrameKind::Interpreter, "lj_BC_TGETS");
    let str_find = m.native("lj_str_find", "/usr/lib/libluajit-5.1.so.2");
    let epoll_wait = m.native("epoll_wait", "/usr/lib/libc.so.6");
    let do_epoll = m.frame(FrameKind::Kernel, "do_epoll_wait");
    m.on_cpu(60, &[main, handler, tab_get], LuaContext::With);
    m.on_cpu(90, &[main, handler, filter, tgets], LuaContext::With);
    let recursive = [main, handler, filter, filter_again, find, str_find];
    m.on_cpu(10, &recursive, LuaContext::With);
    m.on_cpu(30, &[main, epoll_wait, do_epoll], LuaContext::NativeOnly);
    m.on_cpu(10, &[], LuaContext::StackCut);
    m
}

fn json_of(profile: &Profile, plan: RankPlan) -> Value {
    serde_json::to_value(rank(profile, plan).expect("enough samples")).expect("JSON")
}

/// `[name, self, self share, inclusive, inclusive share]` of every row.
fn rows(report: &Value, list: &str, name: &str, unit: &str) -> Vec<Value> {
    let rows = report[list].as_array().expect("a list");
    rows.iter()
        .map(|row| {
            json!([
                row[name],
                row[format!("self_{unit}")],
                row["self_share"],
                row[format!("inclusive_{unit}")],
                row["inclusive_share"]
            ])
        })
        .collect()
}

#[test]
fn lua_functions_are_ranked_among_samples_with_lua_context_and_own_the_c_they_call() {
    let report = json_of(&gateway().profile, PLAN);
    assert_eq!(report["denominators"]["samples"], 200);
    assert_eq!(report["denominators"]["lua_context"], 160);
    assert_eq!(
        rows(&report, "lua", "function", "samples"),
        [
            // 90 of 160, and 100 of 160 with the recursive ones counted once.
            json!(["filter", 90, 0.5625, 100, 0.625]),
            json!(["handler", 60, 0.375, 160, 1.0]),
            json!(["string.find", 10, 0.0625, 10, 0.0625]),
        ]
    );
    assert_eq!(report["lua"][0]["source"], "@plugin.lua:578");
    assert_eq!(report["lua"][2]["source"], Value::Null);
    assert_ne!(report["lua"][2]["source_reason"], Value::Null);
}

#[test]
fn lua_lines_take_what_their_built_ins_cost() {
    let report = json_of(&gateway().profile, PLAN);
    assert_eq!(
        rows(&report, "lines", "source", "samples"),
        [
            json!(["@plugin.lua:581", 90, 0.5625, 100, 0.625]),
            json!(["@a.lua:12", 60, 0.375, 160, 1.0]),
            json!(["@plugin.lua:590", 10, 0.0625, 10, 0.0625]),
        ]
    );
}

#[test]
fn machine_code_is_ranked_among_all_samples_also_those_without_a_stack() {
    let report = json_of(&gateway().profile, PLAN);
    assert_eq!(
        rows(&report, "native", "function", "samples"),
        [
            json!(["lj_BC_TGETS", 90, 0.45, 90, 0.45]),
            json!(["lj_tab_get", 60, 0.3, 60, 0.3]),
            json!(["do_epoll_wait", 30, 0.15, 30, 0.15]),
            json!(["lj_str_find", 10, 0.05, 10, 0.05]),
            json!(["main", 0, 0.0, 190, 0.95]),
            json!(["epoll_wait", 0, 0.0, 30, 0.15]),
        ]
    );
    assert_eq!(report["native"][1]["module"], "libluajit-5.1.so.2");
    assert_eq!(report["denominators"]["no_stack"], 10);
    let self_samples: u64 = report["native"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["self_samples"].as_u64())
        .sum();
    assert_eq!(
        self_samples, 190,
        "every stack ends in exactly one function"
    );
}

#[test]
fn the_share_without_lua_context_says_why() {
    let report = json_of(&gateway().profile, PLAN);
    assert_eq!(
        report["without_lua_context"],
        json!({"weight": 40, "share": 0.2, "reasons": {"native_only_thread": 30, "stack_cut": 10}})
    );
}

#[test]
fn the_documents_fields_are_there_and_every_null_has_its_reason() {
    let mut m = gateway();
    m.profile.capture.ledger_on_cpu.taken = 203;
    m.profile.capture.ledger_on_cpu.kept = 200;
    m.profile.capture.ledger_on_cpu.lose("ring_full", 3);
    let report = json_of(&m.profile, PLAN);
    assert_eq!(report["schema"], "rank/1");
    assert_eq!(report["ledger"]["lost"]["ring_full"], 3);
    assert!(report["tool"].is_string());
    assert_eq!(
        report["lua"][0]["us_per_request_reason"],
        "requests were not counted when this was recorded"
    );
    check_nulls(&report);
    check_nulls(&json_of(&blocked().profile, OFF_CPU));
}

fn check_nulls(value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let reason = fields.get(&format!("{key}_reason"));
                let told = key.ends_with("_reason")
                    || key == "module_path" && !fields["module_reason"].is_null()
                    || key == "lua_function" && !fields["lua_line_reason"].is_null()
                    || reason.is_some_and(Value::is_string);
                assert!(!field.is_null() || told, "{key} is null without a reason");
                check_nulls(field);
            }
        }
        Value::Array(items) => items.iter().for_each(check_nulls),
        _ => {}
    }
}

#[test]
fn a_limit_counts_what_it_leaves_out_and_inclusive_order_is_another_order() {
    let plan = RankPlan {
        by: RankBy::Inclusive,
        limit: Some(1),
        ..PLAN
    };
    let report = json_of(&gateway().profile, plan);
    assert_eq!(report["lua"][0]["function"], "handler");
    assert_eq!(report["native"][0]["function"], "main");
    assert_eq!(
        report["omitted"],
        json!({"lua": 2, "lines": 2, "native": 5})
    );
}

#[test]
fn one_process_can_be_looked_at_alone() {
    let mut m = gateway();
    let spin = m.native("spin", "/bin/other");
    for _ in 0..150 {
        m.sample(8, &[spin], LuaContext::NoVm, SampleKind::OnCpu);
    }
    let plan = RankPlan {
        pid: Some(8),
        ..PLAN
    };
    let report = json_of(&m.profile, plan);
    assert_eq!(report["denominators"]["samples"], 150);
    assert_eq!(report["native"][0]["self_share"], 1.0);
    assert_eq!(report["lua"], json!([]));
    let plan = RankPlan {
        pid: Some(9),
        ..PLAN
    };
    assert_eq!(
        rank(&m.profile, plan),
        Err(NotEnoughData::NoSuchProcess {
            kind: CaptureKind::OnCpu,
            pid: 9
        })
    );
}

#[test]
fn too_few_samples_are_not_ranked() {
    let mut m = Maker::new();
    let main = m.native("main", "/bin/a");
    m.on_cpu(FEWEST_SAMPLES as usize - 1, &[main], LuaContext::NoVm);
    assert_eq!(
        rank(&m.profile, PLAN),
        Err(NotEnoughData::TooFew {
            kind: CaptureKind::OnCpu,
            found: 99,
            needed: 100
        })
    );
    m.on_cpu(1, &[main], LuaContext::NoVm);
    assert!(rank(&m.profile, PLAN).is_ok());
    m.profile.capture.kinds = vec![CaptureKind::OnCpu];
    assert_eq!(
        rank(&m.profile, OFF_CPU),
        Err(NotEnoughData::NotRecorded(CaptureKind::OffCpu))
    );
}

/// 1100 ms blocked: 700 in a log write, 300 in a connect, 50 without a kernel stack, 50 without any;
/// 5 s idle, 7 ms preempted.
fn blocked() -> Maker {
    let mut m = Maker::new();
    let main = m.native("main", "/usr/sbin/nginx");
    let append = m.lua("append", "@log.lua", 30, 31);
    let dial = m.lua("dial", "@sock.lua", 5, 9);
    let write = m.native("write", "/usr/lib/libc.so.6");
    let connect = m.native("connect", "/usr/lib/libc.so.6");
    let epoll_wait = m.native("epoll_wait", "/usr/lib/libc.so.6");
    let mut kernel = |name| m.frame(FrameKind::Kernel, name);
    let vfs_write = kernel("vfs_write");
    let rwsem = kernel("rwsem_down_write_slowpath");
    let inet_wait = kernel("inet_wait_for_connect");
    let timeout = kernel("schedule_timeout_interruptible");
    let ep_poll = kernel("ep_poll");
    let hrtimeout = kernel("schedule_hrtimeout_range");
    let disabled = kernel("schedule_preempt_disabled");
    let schedule = kernel("schedule.isra.0");
    let switch = kernel("__schedule");
    let holder = m.thread(7, 8, "holder");
    let log = [
        main, append, write, vfs_write, rwsem, disabled, schedule, switch,
    ];
    let woken = Off {
        runnable_ms: Some(20),
        waker: Some(holder),
        ..BLOCKED
    };
    m.off_cpu(600, &log, LuaContext::With, woken);
    m.off_cpu(100, &log, LuaContext::With, BLOCKED);
    let dialing = [main, dial, connect, inet_wait, timeout, schedule, switch];
    m.off_cpu(300, &dialing, LuaContext::With, BLOCKED);
    m.off_cpu(50, &[main, connect], LuaContext::NativeOnly, BLOCKED);
    m.off_cpu(50, &[], LuaContext::StackCut, BLOCKED);
    let idle = Off {
        idle: true,
        ..BLOCKED
    };
    let polling = [main, epoll_wait, ep_poll, hrtimeout, schedule, switch];
    m.off_cpu(5_000, &polling, LuaContext::NativeOnly, idle);
    let preempted = Off {
        reason: SwitchReason::Preempted,
        ..BLOCKED
    };
    m.off_cpu(
        7,
        &[main, append, schedule, switch],
        LuaContext::With,
        preempted,
    );
    m
}

#[test]
fn blocked_idle_and_preempted_time_have_totals_of_their_own() {
    let of = &json_of(&blocked().profile, OFF_CPU)["denominators"];
    assert_eq!(of["blocked_ns"], 1_100_000_000u64);
    assert_eq!(of["blocked_waits"], 5);
    assert_eq!(of["blocked_runnable_ns"], 20_000_000);
    assert_eq!(of["blocked_waits_without_wakeup"], 4);
    assert_eq!(of["lua_context_ns"], 1_000_000_000);
    assert_eq!(
        (&of["idle_ns"], &of["idle_waits"]),
        (&json!(5_000_000_000u64), &json!(1))
    );
    assert_eq!(of["preempted_ns"], 7_000_000);
}

#[test]
fn a_wait_is_named_by_its_kernel_function_its_lua_line_and_its_waker() {
    let report = json_of(&blocked().profile, OFF_CPU);
    let log = &report["waits"][0];
    assert_eq!(log["wait_function"], "rwsem_down_write_slowpath");
    assert_eq!(log["native_function"], "write");
    assert_eq!(log["lua_function"], "append");
    assert_eq!(log["lua_line"], "@log.lua:31");
    assert_eq!(log["total_ns"], 700_000_000);
    assert_eq!(log["share"], 700.0 / 1100.0);
    assert_eq!(
        (&log["count"], &log["longest_ns"]),
        (&json!(2), &json!(600_000_000))
    );
    assert_eq!(
        log["wakers"],
        json!([{"comm": "holder", "pid": 7, "tid": 8, "woke_ns": 600_000_000}])
    );
    assert_eq!(log["waker_unseen_ns"], 100_000_000);

    let dial = &report["waits"][1];
    assert_eq!(dial["wait_function"], "inet_wait_for_connect");
    assert_eq!(dial["lua_line"], "@sock.lua:9");
    let reasons: Vec<_> = (2..4)
        .map(|i| &report["waits"][i]["wait_function_reason"])
        .collect();
    assert!(reasons.contains(&&json!("no kernel stack")));
    assert!(reasons.contains(&&json!("no stack")));

    assert_eq!(report["idle"][0]["wait_function"], "ep_poll");
    assert_eq!(report["idle"][0]["share"], 1.0);
    assert_eq!(report["idle"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_limit_counts_the_waits_that_it_leaves_out_idle_ones_too() {
    let mut m = blocked();
    let accept = m.frame(FrameKind::Kernel, "inet_csk_accept");
    let idle = Off {
        idle: true,
        ..BLOCKED
    };
    m.off_cpu(10, &[accept], LuaContext::NativeOnly, idle);
    let plan = RankPlan {
        limit: Some(1),
        ..OFF_CPU
    };
    let report = json_of(&m.profile, plan);
    // Four sorts of blocking and two of idling.
    assert_eq!(report["omitted_waits"], 3);
    assert_eq!(report["omitted_idle"], 1);
    let text = render(&rank(&m.profile, plan).expect("enough"));
    assert!(text.contains("  (1 more rows)"), "{text}");
}

#[test]
fn blocked_time_is_self_of_what_waits_not_of_the_scheduler() {
    let report = json_of(&blocked().profile, OFF_CPU);
    let native = rows(&report, "native", "function", "blocked_ns");
    assert_eq!(native[0][0], "rwsem_down_write_slowpath");
    assert_eq!(native[0][1], 700_000_000);
    assert!(native.iter().all(|row| row[0] != "__schedule"));
    assert_eq!(
        rows(&report, "lua", "function", "blocked_ns"),
        [
            json!(["append", 700_000_000, 0.7, 700_000_000, 0.7]),
            json!(["dial", 300_000_000, 0.3, 300_000_000, 0.3]),
        ]
    );
}

#[test]
fn the_text_names_every_denominator_the_ledger_and_the_boundaries() {
    let mut m = gateway();
    m.profile.capture.ledger_on_cpu.taken = 200;
    m.profile.capture.ledger_on_cpu.kept = 200;
    let text = render(&rank(&m.profile, PLAN).expect("enough"));
    for part in [
        "On-CPU samples of capture 3, 30.0 s: 200 at 99 Hz",
        "Lua functions by self; shares of the 160 samples with Lua context",
        "   56.2 %        90   62.5 %       100  filter  @plugin.lua:578",
        "Machine code by self; shares of all 200 samples",
        "Without Lua context: 40 samples (20.0 %): native_only_thread 30 samples, stack_cut 10 samples",
        "Ledger: 200 taken = 200 kept + 0 lost",
        "What this does not prove",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let text = render(&rank(&blocked().profile, OFF_CPU).expect("enough"));
    for part in [
        "Blocked, by time; shares of 1.10 s blocked",
        "rwsem_down_write_slowpath < write < append @log.lua:31 (woken by holder 7/8 85.7 %)",
        "idle          5.00 s in 1 waits for work",
        "[no kernel stack] < connect < [native_only_thread]",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn an_incomplete_capture_is_named_so() {
    let mut m = gateway();
    m.profile.capture.complete = false;
    let report = rank(&m.profile, PLAN).expect("enough");
    assert!(render(&report).contains("INCOMPLETE"));
    assert!(matches!(report, RankReport::OnCpu(report) if !report.heading.complete));
}

#[test]
fn hostile_names_and_durations_cannot_steer_the_terminal_or_overflow() {
    let mut m = Maker::new();
    let evil = m.lua("\x1b[2Jevil\n", &"@\x1b]0;x\x07".repeat(200), 1, u32::MAX);
    let native = m.native("\u{202e}cba", "/tmp/\r/");
    m.on_cpu(100, &[evil, native], LuaContext::With);
    for _ in 0..3 {
        m.off_cpu(
            u64::MAX / 1_000_000,
            &[evil, native],
            LuaContext::With,
            BLOCKED,
        );
    }
    for plan in [PLAN, OFF_CPU] {
        let text = render(&rank(&m.profile, plan).expect("enough"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        assert!(text.contains("\\x1b[2Jevil\\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 1_000));
    }
}
