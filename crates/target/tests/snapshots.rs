//! The frames of snapshots, compared with what `jit.util` says of them inside the VM, in every build.

mod support;

use std::path::Path;

use support::{Running, find};
use throughline_luabuilds::{all, ready};
use throughline_target::{
    FrameFunction, LinkType, LiveProcess, Origin, Snapshot, Vm, prototype, snapshots, trace,
};

/// Line of the function that has many closures, so that no constant holds it.
fn line_of_the_closure() -> u32 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lua/inlined.lua");
    let text = std::fs::read_to_string(script).expect("the script");
    let before = text
        .lines()
        .take_while(|line| !line.contains("closures[i] = function"));
    before.count() as u32 + 1
}

/// A snapshot's frames as the script tells them. `anew` stands for a function that is no constant.
fn told(process: &LiveProcess, vm: &Vm, snapshot: &Snapshot, expected: &str) -> String {
    let mut words = Vec::new();
    let mut expected = expected.split(' ');
    for frame in &snapshot.frames {
        let name = match frame.function.expect("known") {
            FrameFunction::Lua { bytecode_start } => prototype(process, &vm.layout, bytecode_start)
                .expect("a prototype")
                .first_line
                .to_string(),
            FrameFunction::Fast { ffid } => format!("fast{ffid}"),
            FrameFunction::C { .. } => "c".to_owned(),
        };
        let anew = expected
            .next()
            .is_some_and(|word| word.starts_with("anew:"));
        let name = if anew && name == line_of_the_closure().to_string() {
            "anew".to_owned()
        } else {
            name
        };
        words.push(format!("{name}:{}", frame.link));
    }
    words.join(" ")
}

#[test]
fn every_frame_of_every_snapshot_is_the_one_that_the_vm_says() {
    for build in all().into_iter().filter_map(ready) {
        let running = Running::start(&build, "inlined.lua", &["30"]);
        let process = running.process();
        let vm = find(&process, &build).vm;
        let (mut frames, mut kinds, mut anew) = (0, [0; 8], 0);
        let (mut sides, mut stitches) = (0, 0);
        for fact in running.facts("trace") {
            let number: u32 = fact[0].parse().expect("a number");
            let read = trace(&process, &vm, number).expect("a trace");
            let list = snapshots(&process, &vm, &read).expect("snapshots").list;
            assert_eq!(list.len().to_string(), fact[3], "{} {number}", build.name);
            match read.origin {
                Origin::Root => assert_eq!(read.root, None),
                Origin::Exit {
                    trace: parent,
                    exit,
                } => {
                    let parent = trace(&process, &vm, parent).expect("its parent");
                    assert!(exit < u32::from(parent.snapshots));
                    assert_eq!(read.root, Some(parent.root.unwrap_or(parent.number)));
                    sides += 1;
                }
                Origin::Stitch { trace: before } => {
                    let before = trace(&process, &vm, before).expect("the one before");
                    assert_eq!(before.link_type, LinkType::Stitch);
                    assert_eq!(before.link, Some(number));
                    stitches += 1;
                }
            }
            for (index, snapshot) in list.iter().enumerate() {
                let facts = running.facts("snapshot");
                let fact = facts
                    .iter()
                    .find(|fact| fact[0] == number.to_string() && fact[1] == index.to_string());
                let expected = &fact.expect("told")[2];
                assert_eq!(
                    told(&process, &vm, snapshot, expected),
                    *expected,
                    "{}, trace {number}, snapshot {index}",
                    build.name
                );
                frames += snapshot.frames.len();
                anew += expected.matches("anew").count();
                for frame in &snapshot.frames {
                    kinds[(frame.link & 7) as usize] += 1;
                }
            }
        }
        eprintln!(
            "{}: {frames} frames of types {kinds:?}, {anew} of closures, {sides} side traces, {stitches} stitched",
            build.name
        );
        assert!(frames > 80, "{}", build.name);
        assert!(
            kinds[2] > 0 && kinds[3] > 0 && kinds[6] > 0 && anew > 0,
            "{}: {kinds:?}",
            build.name
        );
        assert!(sides > 0 && stitches > 0, "{}", build.name);
    }
}
