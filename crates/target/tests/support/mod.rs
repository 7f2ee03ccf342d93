//! A Lua script running in a real build, and what it told about itself.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;

use throughline_luabuilds::Build;
use throughline_target::{LiveProcess, Maps, Vm, find_vms, interpreter_range, parse_maps};

/// A script that has printed "ready" and now runs until it is dropped.
pub struct Running {
    child: Child,
    /// The words of each line before "ready", split at tabs.
    pub facts: Vec<Vec<String>>,
}

impl Running {
    pub fn start(build: &Build, script: &str, arguments: &[&str]) -> Running {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/lua")
            .join(script);
        Running::wait_for(
            &build.name,
            build.run(&script, arguments).expect("the build runs"),
        )
    }

    pub fn wait_for(name: &str, mut child: Child) -> Running {
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut facts = Vec::new();
        for line in output.lines() {
            let line = line.expect("text");
            if line == "ready" {
                return Running { child, facts };
            }
            facts.push(line.split('\t').map(str::to_owned).collect());
        }
        panic!("{name}: ended before it was ready: {:?}", child.wait());
    }

    pub fn process(&self) -> LiveProcess {
        LiveProcess::open(self.child.id()).expect("a child can be read")
    }

    /// The facts that begin with `kind`, without that word.
    pub fn facts(&self, kind: &str) -> Vec<&[String]> {
        let of_kind = self.facts.iter().filter(|fact| fact[0] == kind);
        of_kind.map(|fact| &fact[1..]).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The only VM of a process, where its interpreter lies in the file, and by how much it is moved.
pub struct Found {
    pub maps: Maps,
    pub vm: Vm,
    pub interpreter: std::ops::Range<u64>,
    pub bias: u64,
}

pub fn find(process: &LiveProcess, build: &Build) -> Found {
    let maps = parse_maps(&process.maps().expect("maps"));
    assert_eq!(maps.bad_lines, 0);
    let scan = find_vms(process, &maps.mappings).expect("memory");
    assert_eq!(scan.rejected, [], "{}", build.name);
    let [vm] = scan.vms[..] else {
        panic!("{}: {} VMs", build.name, scan.vms.len())
    };
    let code = maps.find(vm.first_handler).expect("mapped");
    let path = code.path_lossy().expect("a file");
    assert_eq!(
        Path::new(&path),
        build.library_path.canonicalize().expect("exists")
    );
    let elf = std::fs::read(&build.library_path).expect("a file");
    let interpreter = interpreter_range(&elf).expect("an interpreter");
    // The first bytecode's handler is the first code of the interpreter (vm_x64.dasc).
    let bias = vm.first_handler - interpreter.start;
    assert_eq!(
        bias % 4096,
        0,
        "{}: the interpreter starts with its first handler",
        build.name
    );
    Found {
        maps,
        vm,
        interpreter,
        bias,
    }
}

/// The address in a fact.
pub fn address(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address")
}
