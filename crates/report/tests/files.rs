//! SVG and folded text: numbers, escapes, and the choice of the view.

mod fixture;

use roxmltree::Document;
use throughline_profile::SampleKind;
use throughline_report::{
    FlamePlan, View, ViewError, ViewPlan, flame_html, flame_svg, folded, unescape_folded,
};
use throughline_units::Nanos;

fn titles(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("well-formed");
    let nodes = document
        .descendants()
        .filter(|node| node.has_tag_name("title"));
    nodes
        .filter_map(|node| node.text().map(str::to_owned))
        .collect()
}

#[test]
fn the_svg_is_well_formed_whatever_the_names_are() {
    let svg = flame_svg(&fixture::gateway(), &ViewPlan::default()).expect("a view");
    let titles = titles(&svg);
    assert!(titles.contains(
        &"</script><script>window.pwned=1;alert(1)</script> (lua): 10 samples, 0.99 % of on-CPU samples"
            .to_owned()
    ));
    assert!(
        titles
            .iter()
            .any(|title| title.starts_with("\\u{202e}gpj.exe (lua)"))
    );
    assert!(
        titles
            .iter()
            .any(|title| title.starts_with("\\x1b[2J\\x07\\x00\\u{fffe} (lua)"))
    );
}

#[test]
fn the_svg_holds_names_shares_marks_and_the_ledger() {
    let svg = flame_svg(&fixture::gateway(), &ViewPlan::default()).expect("a view");
    let titles = titles(&svg);
    for title in [
        "all: 1,010 samples, 100.00 % of on-CPU samples",
        "filter plugin.lua:578 (lua): 600 samples, 59.41 % of on-CPU samples",
        "lj_tab_get (native, inlined): 141 samples, 13.96 % of on-CPU samples",
        "trace 3 (jit, guessed): 200 samples, 19.80 % of on-CPU samples",
    ] {
        assert!(titles.contains(&title.to_owned()), "{title} in {titles:#?}");
    }
    for text in [
        "1,010 on-CPU samples",
        "Ledger: 1,019 taken = 1,010 kept + 9 lost (no_user_memory 3, thread_gone 6)",
        "Without Lua context: native_only_thread 150 samples, stack_cut 10 samples",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn an_inverted_view_starts_at_the_innermost_frames() {
    let plan = ViewPlan {
        inverted: true,
        zoom: vec![
            "filter plugin.lua:578".to_owned(),
            "run_global_rules init.lua:1490".to_owned(),
        ],
        ..ViewPlan::default()
    };
    let svg = flame_svg(&fixture::gateway(), &plan).expect("a view");
    let titles = titles(&svg);
    // 59 + 100 samples end in filter; 100 of them came through another filter.
    for start in [
        "filter plugin.lua:578 (lua): 159 samples",
        "run_global_rules init.lua:1490 (lua): 159 samples",
        "filter plugin.lua:578 (lua): 100 samples",
        "ngx_http_lua_run_thread (native): 59 samples",
    ] {
        assert!(
            titles.iter().any(|title| title.starts_with(start)),
            "{start} in {titles:#?}"
        );
    }
    assert_eq!(
        folded(&fixture::gateway(), &plan).expect("a view"),
        "filter plugin.lua:578;run_global_rules init.lua:1490;filter plugin.lua:578;\
         run_global_rules init.lua:1490;ngx_http_lua_run_thread;ngx_worker_process_cycle;main 100\n\
         filter plugin.lua:578;run_global_rules init.lua:1490;ngx_http_lua_run_thread;\
         ngx_worker_process_cycle;main 59\n"
    );
}

#[test]
fn folded_lines_add_up_are_sorted_and_read_back() {
    let text = folded(&fixture::gateway(), &ViewPlan::default()).expect("a view");
    let mut total = 0;
    let mut names = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        total += weight.parse::<u64>().expect("a number");
        names.extend(
            stack
                .split(';')
                .map(|frame| unescape_folded(frame).expect("our escapes")),
        );
    }
    assert_eq!(total, 1_010);
    assert!(lines.is_sorted());
    for name in fixture::HOSTILE {
        assert!(names.iter().any(|known| known.contains(name)), "{name:?}");
    }
    assert!(lines.contains(&"[no stack] 10"));
}

#[test]
fn folded_text_of_a_search_holds_only_stacks_that_match() {
    let plan = ViewPlan {
        search: Some("lj_".to_owned()),
        ..ViewPlan::default()
    };
    let text = folded(&fixture::gateway(), &plan).expect("a view");
    let stack = "main;ngx_worker_process_cycle;ngx_http_lua_run_thread;\
                 run_global_rules init.lua:1490;filter plugin.lua:578";
    assert_eq!(
        text,
        format!("{stack};lj_BC_TGETS 300\n{stack};lj_tab_get 141\n")
    );
}

#[test]
fn off_cpu_weights_are_nanoseconds_and_leave_idle_waits_out() {
    let plan = ViewPlan {
        view: View::OffCpu,
        ..ViewPlan::default()
    };
    let text = folded(&fixture::gateway(), &plan).expect("a view");
    assert!(
        text.contains(";logger.lua:12;write;do_syscall_64 750000000\n"),
        "{text}"
    );
    assert!(!text.contains("epoll_wait"), "{text}");
    let sum: u64 = text
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, 1_000_000_000);
}

#[test]
fn a_view_that_does_not_exist_is_an_error_that_names_it() {
    let profile = fixture::gateway();
    let plan = ViewPlan {
        zoom: vec!["main".to_owned(), "nowhere".to_owned()],
        ..ViewPlan::default()
    };
    let Err(ViewError::NoSuchPath { label, level }) = flame_svg(&profile, &plan) else {
        panic!("no such path");
    };
    assert_eq!((label.as_str(), level), ("nowhere", 2));
    let plan = ViewPlan {
        search: Some("(".to_owned()),
        ..ViewPlan::default()
    };
    assert!(matches!(folded(&profile, &plan), Err(ViewError::Search(_))));
}

#[test]
fn absurd_durations_saturate_instead_of_panicking() {
    let mut profile = fixture::gateway();
    let rows = profile.samples.drain();
    for mut sample in rows {
        if let SampleKind::OffCpu(off) = &mut sample.kind {
            off.duration = Nanos(u64::MAX);
        }
        profile.samples.push(sample);
    }
    for inverted in [false, true] {
        let plan = ViewPlan {
            view: View::OffCpu,
            inverted,
            ..ViewPlan::default()
        };
        assert!(!titles(&flame_svg(&profile, &plan).expect("a view")).is_empty());
        assert!(
            folded(&profile, &plan)
                .expect("a view")
                .contains(&u64::MAX.to_string())
        );
    }
    assert!(flame_html(&profile, &FlamePlan::default()).contains("<main"));
}
