//! The roll-up of one function in profiles whose answer is arithmetic.

use throughline_analyses::Bound;
use throughline_analyses::path::{MatchedBy, PathError, PathPlan, PathReport, path, render};
use throughline_profile::{
    Capture, CaptureKind, Category, CategorySet, Classified, Frame, FrameId, FrameKind, LuaContext,
    Module, Profile, RequestCount, Sample, Thread,
};
use throughline_units::Nanos;

struct Maker(Profile);

impl Maker {
    fn new() -> Self {
        Self(Profile {
            capture: Capture {
                kinds: vec![CaptureKind::OnCpu],
                rate_hz: 100,
                duration: Nanos(10_000_000_000),
                complete: true,
                requests: RequestCount::Counted {
                    count: 1_000,
                    source: "uprobe:ngx_http_free_request".to_owned(),
                },
                ..Capture::default()
            },
            ..Profile::default()
        })
    }

    fn native(&mut self, name: &str, path: &str) -> FrameId {
        let path = self.0.strings.intern(path);
        let mut frame = Frame::new(FrameKind::Native, self.0.strings.intern(name));
        frame.module = Some(self.0.modules.intern(Module {
            path,
            build_id: None,
        }));
        self.0.frames.intern(frame)
    }

    fn vm(&mut self, kind: FrameKind, name: &str) -> FrameId {
        let frame = Frame::new(kind, self.0.strings.intern(name));
        self.0.frames.intern(frame)
    }

    fn lua(&mut self, name: &str, chunk: &str, first_line: u32, line: u32) -> FrameId {
        let mut frame = Frame::new(FrameKind::Lua, self.0.strings.intern(name));
        frame.source = Some(self.0.strings.intern(chunk));
        frame.first_line = first_line;
        frame.line = line;
        self.0.frames.intern(frame)
    }

    /// Samples of a stack, root first.
    fn add(&mut self, count: usize, category: Category, root_first: &[FrameId]) {
        let comm = self.0.strings.intern("nginx");
        let thread = self.0.threads.intern(Thread {
            pid: 7,
            tid: 7,
            comm,
            start_ns: None,
        });
        let stack = self.0.stacks.push_all(root_first.iter().copied());
        let runtime = category == Category::LuaRuntime;
        for _ in 0..count {
            let mut sample = Sample::on_cpu(Nanos(0), thread, stack);
            sample.lua = LuaContext::With;
            sample.category = Some(Classified {
                category,
                may_be: if runtime {
                    CategorySet::EMPTY.with(Category::Gc)
                } else {
                    CategorySet::EMPTY
                },
            });
            self.0.samples.push(sample);
        }
    }
}

/// 200 samples, 120 of them under `filter`: 60 from the access phase (two lines), 60 from a body filter that runs inside of the
/// content phase; 30 of the 120 in C, and recursion twice.
fn gateway() -> Profile {
    let mut m = Maker::new();
    let main = m.native("main", "/usr/sbin/nginx");
    let phases = m.native("ngx_http_core_run_phases", "/usr/sbin/nginx");
    let output = m.native("ngx_http_output_filter", "/usr/sbin/nginx");
    let special = m.native("ngx_http_send_special", "/usr/sbin/nginx");
    let lua_module = "/usr/lib/nginx/modules/ngx_http_lua_module.so";
    let access = m.native("ngx_http_lua_access_by_chunk", lua_module);
    let content = m.native("ngx_http_lua_content_by_chunk", lua_module);
    let body = m.native("ngx_http_lua_body_filter_by_chunk", lua_module);
    let say = m.native("ngx_http_lua_ngx_say", lua_module);
    let access_chunk = m.lua("access_by_lua(a.conf:1)", "=access_by_lua(a.conf:1)", 0, 1);
    let content_chunk = m.lua(
        "content_by_lua(a.conf:2)",
        "=content_by_lua(a.conf:2)",
        0,
        1,
    );
    let body_chunk = m.lua(
        "body_filter_by_lua(a.conf:3)",
        "=body_filter_by_lua(a.conf:3)",
        0,
        1,
    );
    let phase_66 = m.lua("http_access_phase", "@/opt/init.lua", 60, 66);
    let phase_67 = m.lua("http_access_phase", "@/opt/init.lua", 60, 67);
    let filter = m.lua("filter", "@/opt/plugin.lua", 85, 90);
    let filter_again = m.lua("filter", "@/opt/plugin.lua", 85, 95);
    let handler = m.vm(FrameKind::Interpreter, "lj_BC_TGETS");
    let tab_get = m.native("lj_tab_get", "/usr/lib/libluajit-5.1.so.2");
    let from_66 = [main, phases, access, access_chunk, phase_66, filter];
    let from_67 = [main, phases, access, access_chunk, phase_67, filter];
    let nested = [
        main,
        phases,
        content,
        content_chunk,
        say,
        special,
        output,
        body,
        body_chunk,
        filter,
        filter_again,
    ];
    let with = |stack: &[FrameId], leaf| [stack, &[leaf]].concat();
    m.add(40, Category::Interpreter, &with(&from_66, handler));
    m.add(20, Category::LuaRuntime, &with(&from_67, tab_get));
    m.add(50, Category::Interpreter, &with(&nested, handler));
    m.add(10, Category::Gc, &with(&nested, tab_get));
    m.add(
        80,
        Category::Interpreter,
        &[main, phases, content, content_chunk, handler],
    );
    m.0
}

fn plan(function: &str) -> PathPlan {
    PathPlan {
        function: function.to_owned(),
        pid: None,
        limit: None,
    }
}

fn rolled(profile: &Profile, function: &str) -> PathReport {
    path(profile, &plan(function)).expect("enough samples and a match")
}

#[test]
fn a_function_is_rolled_up_over_all_its_stacks_and_recursion_counts_once() {
    let report = rolled(&gateway(), "filter");
    assert_eq!(
        (report.inclusive_samples, report.inclusive_share),
        (120, 0.6)
    );
    // All of it is self: `filter` calls no other Lua function. 90 samples are its own bytecode.
    assert_eq!((report.self_samples, report.self_share), (120, 0.6));
    assert_eq!(report.self_in_lua.map(|part| part.samples), Some(90));
    let times = report.inclusive_to_self_in_lua.expect("it has bytecode");
    assert!((times - 120.0 / 90.0).abs() < 1e-12);
    // 120 samples of 10 ms, over 1000 requests.
    assert_eq!(report.us_per_request, Some(1_200.0));
    assert_eq!(report.calls_per_request, None);
    assert!(report.calls_per_request_reason.is_some());
    assert_eq!(report.matches.len(), 1);
    assert_eq!(
        report.matches[0].source.as_deref(),
        Some("@/opt/plugin.lua:85")
    );
    assert_eq!(
        (report.matches[0].stacks, report.matches[0].samples),
        (4, 120)
    );
}

#[test]
fn entries_are_told_apart_by_phase_line_and_nginx_caller() {
    let report = rolled(&gateway(), "filter");
    let entries: Vec<_> = report
        .entered_from
        .iter()
        .map(|entry| {
            (
                entry.function.as_str(),
                entry.at.as_deref().unwrap_or_default(),
                entry.handler.as_deref().unwrap_or_default(),
                entry.caller.as_deref().unwrap_or_default(),
                entry.samples,
            )
        })
        .collect();
    assert_eq!(
        entries,
        [
            (
                "body_filter_by_lua(a.conf:3)",
                "body_filter_by_lua(a.conf:3) =body_filter_by_lua(a.conf:3):1",
                "ngx_http_lua_body_filter_by_chunk",
                "ngx_http_send_special",
                60
            ),
            (
                "access_by_lua(a.conf:1)",
                "http_access_phase @/opt/init.lua:66",
                "ngx_http_lua_access_by_chunk",
                "ngx_http_core_run_phases",
                40
            ),
            (
                "access_by_lua(a.conf:1)",
                "http_access_phase @/opt/init.lua:67",
                "ngx_http_lua_access_by_chunk",
                "ngx_http_core_run_phases",
                20
            ),
        ]
    );
    let sum: f64 = report.entered_from.iter().map(|entry| entry.share).sum();
    assert!((sum - 1.0).abs() < 1e-12);
}

#[test]
fn the_cost_by_category_and_by_leaf_sums_to_the_inclusive_cost() {
    let report = rolled(&gateway(), "filter");
    let by_category: u64 = report.cost_by_category.iter().map(|row| row.samples).sum();
    let by_leaf: u64 = report
        .cost_by_native_leaf
        .iter()
        .map(|row| row.samples)
        .sum();
    assert_eq!((by_category, by_leaf), (120, 120));
    let gc = report.cost_by_category.iter().find(|row| row.name == "gc");
    let gc = gc.expect("the collector ran");
    assert_eq!(
        (gc.samples, gc.bound, gc.at_most_samples),
        (10, Bound::Lower, 30)
    );
    assert_eq!(report.cost_by_native_leaf[0].function, "lj_BC_TGETS");
}

#[test]
fn a_function_is_found_by_name_by_place_or_by_a_part_of_either() {
    let profile = gateway();
    let by = |asked: &str| {
        let report = rolled(&profile, asked);
        (
            report.matched_by,
            report.matches.len(),
            report.inclusive_samples,
        )
    };
    assert_eq!(by("filter"), (MatchedBy::Name, 1, 120));
    assert_eq!(by("plugin.lua:85"), (MatchedBy::SourceLine, 1, 120));
    assert_eq!(by("@/opt/plugin.lua:95"), (MatchedBy::SourceLine, 1, 120));
    assert_eq!(by("access_phase"), (MatchedBy::Substring, 1, 60));
    // The phase's function, its chunk and the C function that runs it: together, counted once.
    assert_eq!(by("access"), (MatchedBy::Substring, 3, 60));
    assert_eq!(by("lj_tab_get"), (MatchedBy::Name, 1, 30));
    let asked = |text: &str| path(&profile, &plan(text));
    assert_eq!(
        asked("ugin.lua:85").map(|r| r.matched_by),
        Ok(MatchedBy::Substring)
    );
    assert_eq!(
        asked("nothing"),
        Err(PathError::NoMatch("nothing".to_owned()))
    );
    assert_eq!(
        asked("plugin.lua:1"),
        Err(PathError::NoMatch("plugin.lua:1".to_owned()))
    );
}

#[test]
fn shares_of_machine_code_are_of_all_samples_and_say_so() {
    let report = rolled(&gateway(), "lj_tab_get");
    assert_eq!((report.share_of, report.self_share), ("samples", 0.15));
    assert_eq!(report.self_in_lua, None);
    assert!(report.self_in_lua_reason.is_some());
}

#[test]
fn too_few_samples_are_no_answer_and_hostile_names_reach_no_terminal() {
    let mut m = Maker::new();
    let evil = m.lua("fil\x1b[2Jter", "@\x1b]0;x\x07", 1, 2);
    m.add(99, Category::Interpreter, &[evil]);
    let error = path(&m.0, &plan("fil")).expect_err("99 samples");
    assert_eq!(error, PathError::TooFew { found: 99 });
    m.add(1, Category::Interpreter, &[evil]);
    let text = render(&rolled(&m.0, "fil"));
    assert!(text.contains("100.0 %") && !text.contains('\x1b'), "{text}");
    let error = path(&m.0, &plan("\x1b[2J")).map(|report| report.matches.len());
    assert_eq!(error, Ok(1));
    let error = path(&m.0, &plan("\x1b[9m")).expect_err("no match");
    assert!(!error.to_string().contains('\x1b'));
}
