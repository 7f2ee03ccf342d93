//! The Lua probe in real builds: its counts against calls whose number the script knows, its events against the
//! bytecodes that LuaJIT patched.

mod support;

use std::path::Path;

use support::Running;
use throughline_luabuilds::{Build, all, ready};
use throughline_target::{
    Probe, ProbeFunction, ProbeInstalled, parse_maps, probe_mappings, read_probe,
};

fn probed(build: &Build, when: &str) -> (Probe, Running) {
    let scratch = tempfile::tempdir().unwrap();
    let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../probe/throughline.lua");
    let arguments = [
        probe.to_str().unwrap(),
        scratch.path().to_str().unwrap(),
        when,
    ];
    let running = Running::start(build, "probe.lua", &arguments);
    let process = running.process();
    let maps = parse_maps(&process.maps().unwrap());
    let mappings: Vec<_> = probe_mappings(&maps.mappings).collect();
    assert_eq!(mappings.len(), 1, "{}", build.name);
    (read_probe(&process, mappings[0]).unwrap(), running)
}

/// Builds whose `jit` modules are at hand: without `jit.vmdef` there are no names of bytecodes.
fn builds() -> impl Iterator<Item = Build> {
    all()
        .into_iter()
        .filter_map(ready)
        .filter(|build| build.vmdef.is_some())
}

fn named<'a>(probe: &'a Probe, name: &str) -> &'a ProbeFunction {
    let mut functions = probe.functions.iter();
    functions.find(|function| function.name == name).unwrap()
}

#[test]
fn a_probe_that_comes_first_counts_every_call_and_changes_no_result() {
    for build in builds() {
        // The script compares each result with what the function gives.
        let (probe, _running) = probed(&build, "early");
        let calls = |name| named(&probe, name).calls;
        assert_eq!(calls("shop.total"), 1501, "{}", build.name);
        assert_eq!(calls("shop.many"), 14);
        assert_eq!(calls("shop.Cart:add"), 70);
        assert_eq!(calls("shop.fails"), 3);
        assert_eq!(calls("shop.lua:2"), 1501, "the local function");
        assert_eq!(calls("level"), 1, "a module that is a function");
        assert_eq!(probe.errors, 0);
        for function in &probe.functions {
            assert_eq!(function.captured_references, 0, "{function:?}");
            assert!(!function.search_cut);
        }
        assert_eq!(
            named(&probe, "shop.total").installed,
            ProbeInstalled::BeforeLoad
        );
        assert_eq!(
            named(&probe, "never.loaded").installed,
            ProbeInstalled::Pending
        );
        assert!(matches!(
            &named(&probe, "shop.nothing").installed,
            ProbeInstalled::NotFound { note } if note.contains("nothing")
        ));
        // There before any probe could be.
        assert_eq!(
            named(&probe, "string.rep").installed,
            ProbeInstalled::AfterLoad
        );
    }
}

#[test]
fn a_probe_that_comes_late_finds_the_references_that_bypass_it() {
    for build in builds() {
        let (probe, _running) = probed(&build, "late");
        let total = named(&probe, "shop.total");
        assert_eq!(total.installed, ProbeInstalled::AfterLoad, "{}", build.name);
        // `buyer` holds the function itself, and calls it 500 times.
        assert_eq!((total.calls, total.captured_references), (1001, 1));
        assert_eq!(named(&probe, "shop.Cart:add").captured_references, 0);
        assert_eq!(probe.errors, 0);
    }
}

#[test]
fn a_start_is_given_up_after_eleven_aborts_with_its_reason() {
    for build in builds() {
        let (probe, running) = probed(&build, "early");
        let [line, fate] = running.facts("nyi")[0] else {
            panic!("two words")
        };
        assert_eq!(fate, "given up", "{}", build.name);
        let events = probe.events.unwrap();
        let of_loop = events.starts.iter().find(|start| {
            start.line.to_string() == *line
                && start.op == "FORL"
                && start.source.ends_with("tests/lua/probe.lua")
        });
        let of_loop = of_loop.unwrap_or_else(|| panic!("{events:?}"));
        assert_eq!((of_loop.aborted, of_loop.compiled), (11, 0));
        assert!(of_loop.reason.contains("FNEW"), "{}", of_loop.reason);
        let own = events
            .starts
            .iter()
            .filter(|start| start.source.ends_with("probe/throughline.lua"));
        assert_eq!(own.count(), 0, "the probe compiles nothing of its own");
    }
}
