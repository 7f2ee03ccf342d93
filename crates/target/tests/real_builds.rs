//! Every LuaJIT that a registry offers, read from outside and compared with what the VM says about
//! itself (`jit.util`, `%p`, `jit/vmdef.lua`) or with its symbol table.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Running, address, find};
use throughline_luabuilds::{
    Build, Fork, LupaModule, NEWEST, all, debian_program, luajit_src, luajit_src_compact,
    luajit_src_lua52, lupa, ready,
};
use throughline_target::{
    FixtureMemory, HandlerKind, JitParams, LuaLibrary, Memory, MemoryError, NoLine, References,
    TraceError, Vm, VmReject, fast_function_names, find_vms, handlers, identify_library,
    interpreter_range, machine_code, parse_maps, prototype, trace, trace_at, trace_count,
};

fn builds() -> impl Iterator<Item = Build> {
    all().into_iter().filter_map(ready)
}

#[test]
fn every_build_is_recognised_with_the_layout_of_its_fork() {
    for build in builds() {
        let running = Running::start(&build, "truth.lua", &["30"]);
        let process = running.process();
        let found = find(&process, &build);
        let openresty = found.vm.layout.name.starts_with("OpenResty");
        assert_eq!(openresty, build.fork == Fork::OpenResty, "{}", build.name);
        assert_ne!(
            found.vm.layout.jit.param,
            JitParams::Unset,
            "{}",
            build.name
        );
        assert!(found.vm.is_alive(&process));
        let elf = std::fs::read(&build.library_path).expect("a file");
        let LuaLibrary::LuaJit {
            version,
            references,
        } = identify_library(&elf)
        else {
            panic!("{}: not taken for LuaJIT", build.name)
        };
        assert!(version.starts_with("LuaJIT 2.1."), "{version}");
        assert_eq!(references, References::Gc64, "{}", build.name);
        eprintln!("{}: {version}, {}", build.name, found.vm.layout.name);
    }
}

#[test]
fn every_instruction_of_every_function_has_the_line_that_the_vm_says() {
    for build in builds() {
        let running = Running::start(&build, "truth.lua", &["30"]);
        let process = running.process();
        let vm = find(&process, &build).vm;
        let mut lines = 0;
        for fact in running.facts("proto") {
            let [tag, function, first, last, instructions] = fact else {
                panic!("{fact:?}")
            };
            let pc = vm.layout.function.pc;
            let start = process.read_u64(address(function) + pc).expect("a closure");
            let read = prototype(&process, &vm.layout, start).expect("a prototype");
            assert_eq!(read.first_line.to_string(), *first, "{} {tag}", build.name);
            assert_eq!(
                (read.first_line + read.line_count).to_string(),
                *last,
                "{tag}"
            );
            assert_eq!(read.instructions.to_string(), *instructions, "{tag}");
            for fact in running.facts("line").iter().filter(|fact| fact[0] == *tag) {
                let pc: u64 = fact[1].parse().expect("a number");
                let line = match read.line_at(start + 4 * (pc + 1)) {
                    Ok(line) => line.to_string(),
                    // `funcinfo` answers 0 where there is no line.
                    Err(NoLine::Stripped) => "0".to_owned(),
                    Err(other) => panic!("{tag} {pc}: {other}"),
                };
                assert_eq!(line, fact[2], "{} {tag} {pc}", build.name);
                lines += 1;
            }
            let end = start + 4 * u64::from(read.instructions);
            assert!(read.contains(end) && !read.contains(end + 4) && !read.contains(start));
            assert_eq!(read.line_at(end + 4), Err(NoLine::Outside));
            match tag.as_str() {
                "hostile" => assert_eq!(read.source(), "/srv/<script>\\u{1b}[2J\\n.lua"),
                "nameless" => assert_eq!(read.source(), "[string \"return 2...\"]"),
                "wide" => assert_eq!(read.to_string(), "wide chunk:0"),
                "leaf" => assert!(read.source().ends_with("tests/lua/truth.lua")),
                _ => {}
            }
        }
        assert!(lines > 1200, "{}: only {lines} lines compared", build.name);
    }
}

#[test]
fn fast_functions_have_the_numbers_of_the_builds_own_vmdef() {
    let compatible = ["210.4.8", NEWEST]
        .map(luajit_src_lua52)
        .into_iter()
        .filter_map(ready);
    for build in builds().chain(compatible) {
        let running = Running::start(&build, "truth.lua", &["30"]);
        let process = running.process();
        let vm = find(&process, &build).vm;
        let names = fast_function_names(&process, &vm).expect("globals");
        // With Lua 5.2 compatibility `unpack` has this second name.
        for fact in running
            .facts("ffid")
            .iter()
            .filter(|fact| fact[0] != "table.unpack")
        {
            let ffid = fact[1].parse().expect("a number");
            assert_eq!(
                names.name(ffid),
                Some(fact[0].as_str()),
                "{} {ffid}",
                build.name
            );
        }
        let Some(vmdef) = &build.vmdef else { continue };
        assert!(names.numbering_known(), "{}", build.name);
        let expected = vmdef_names(&std::fs::read_to_string(vmdef).expect("vmdef.lua"));
        assert!(expected.len() > 200);
        for (ffid, name) in expected.iter().enumerate().skip(2) {
            assert_eq!(
                names.name(ffid as u8),
                Some(name.as_str()),
                "{}",
                build.name
            );
        }
        assert_eq!(names.name(expected.len() as u8), None);
        assert_eq!((names.name(0), names.name(1)), (None, None));
    }
}

/// The strings of `ffnames = { [0]= "Lua", "C", ... }`.
fn vmdef_names(text: &str) -> Vec<String> {
    let (_, list) = text.split_once("ffnames = {").expect("ffnames");
    let (list, _) = list.split_once('}').expect("its end");
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn handlers_have_the_names_and_places_of_the_symbol_table() {
    for build in builds().filter(|build| build.has_symbols) {
        let running = Running::start(&build, "truth.lua", &["30"]);
        let process = running.process();
        let found = find(&process, &build);
        let range = found.interpreter.start + found.bias..found.interpreter.end + found.bias;
        let handlers = handlers(&process, &found.vm, range).expect("handlers");
        let symbols = symbols(&build);
        let mut wrong = Vec::new();
        for handler in handlers
            .iter()
            .filter(|handler| handler.kind != HandlerKind::Subroutine)
        {
            let names = symbols.get(&(handler.address - found.bias));
            if !names.is_some_and(|names| names.contains(&handler.name)) {
                wrong.push(format!("{} {names:?}", handler.name));
            }
        }
        assert_eq!(wrong, [] as [&str; 0], "{}", build.name);
        // Every symbol between the first and the last must lie in the piece that has its name, or,
        // where our table has no such name, in one that claims no name.
        let mut misnamed = Vec::new();
        for (address, names) in symbols.range(found.interpreter.clone()) {
            let piece = handlers
                .iter()
                .find(|handler| (handler.address..handler.end).contains(&(address + found.bias)))
                .expect("no gaps");
            if piece.kind != HandlerKind::Subroutine && !names.contains(&piece.name) {
                misnamed.push(format!("{names:?} is in {}", piece.name));
            }
        }
        eprintln!(
            "{}: {} pieces; not cut: {misnamed:?}",
            build.name,
            handlers.len()
        );
        let functions = |kind| {
            handlers
                .iter()
                .filter(|handler| handler.kind == kind)
                .count()
        };
        assert_eq!(functions(HandlerKind::FastFunction), 57, "{}", build.name);
        assert!(functions(HandlerKind::Bytecode) >= 92, "{}", build.name);
        assert!(
            handlers
                .windows(2)
                .all(|pair| pair[0].end == pair[1].address)
        );
    }
}

/// Names by address as in the file, from `nm`.
fn symbols(build: &Build) -> BTreeMap<u64, BTreeSet<String>> {
    let output = Command::new("nm")
        .arg(&build.library_path)
        .output()
        .expect("nm runs");
    let mut symbols: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let [address, _, name] = line.split(' ').collect::<Vec<_>>()[..]
            && name.starts_with("lj_")
        {
            let address = u64::from_str_radix(address, 16).expect("an address");
            symbols.entry(address).or_default().insert(name.to_owned());
        }
    }
    symbols
}

#[test]
fn traces_start_and_link_where_the_vm_says() {
    for build in builds() {
        let running = Running::start(&build, "truth.lua", &["30"]);
        let process = running.process();
        let vm = find(&process, &build).vm;
        let code = machine_code(&process, &vm).expect("areas");
        assert!(!code.incomplete && !code.areas.is_empty(), "{}", build.name);
        let facts = running.facts("trace");
        assert!(facts.len() > 3, "{}", build.name);
        assert!(trace_count(&process, &vm).expect("a count") as usize > facts.len());
        for fact in facts {
            let [number, link, link_type, exits, start] = fact else {
                panic!("{fact:?}")
            };
            let read = trace(&process, &vm, number.parse().expect("a number")).expect("a trace");
            assert_eq!(
                read.link.unwrap_or(0).to_string(),
                *link,
                "{} {number}",
                build.name
            );
            assert_eq!(
                read.link_type.to_string(),
                *link_type,
                "{} {number}",
                build.name
            );
            assert_eq!(
                read.snapshots.to_string(),
                *exits,
                "{} {number}",
                build.name
            );
            assert_eq!(
                read.machine_code.start.to_string(),
                *start,
                "{} {number}",
                build.name
            );
            let middle = (read.machine_code.start + read.machine_code.end) / 2;
            assert!(code.contains(middle));
            assert_eq!(
                trace_at(&process, &vm, middle).expect("its own").number,
                read.number
            );
            let function =
                prototype(&process, &vm.layout, read.start_bytecode).expect("a function");
            assert!(
                function.line_at(read.start_pc + 4).is_ok(),
                "{} {number}",
                build.name
            );
        }
        assert_eq!(trace(&process, &vm, 0), Err(TraceError::None { number: 0 }));
        assert_eq!(
            trace_at(&process, &vm, 8),
            Err(TraceError::NoneAt { address: 8 })
        );
    }
}

#[test]
fn a_vm_with_32_bit_references_is_refused_by_name() {
    for build in [luajit_src_compact(), lupa(LupaModule::LuaJit20)]
        .into_iter()
        .filter_map(ready)
    {
        let running = Running::start(&build, "spin.lua", &["30"]);
        let process = running.process();
        let maps = parse_maps(&process.maps().expect("maps"));
        let scan = find_vms(&process, &maps.mappings).expect("memory");
        assert_eq!(scan.vms, [], "{}", build.name);
        let reasons: Vec<_> = scan
            .rejected
            .iter()
            .map(|(_, reason)| reason.clone())
            .collect();
        assert_eq!(reasons, [VmReject::NotGc64], "{}", build.name);
        let elf = std::fs::read(&build.library_path).expect("a file");
        assert!(
            matches!(
                identify_library(&elf),
                LuaLibrary::LuaJit {
                    references: References::Compact,
                    ..
                }
            ),
            "{}: {:?}",
            build.name,
            identify_library(&elf)
        );
    }
}

#[test]
fn puc_lua_is_named_and_not_taken_for_a_vm() {
    for (module, minor) in [(LupaModule::Lua51, "5.1."), (LupaModule::Lua54, "5.4.")] {
        let Some(build) = ready(lupa(module)) else {
            continue;
        };
        let running = Running::start(&build, "spin.lua", &["30"]);
        let process = running.process();
        let maps = parse_maps(&process.maps().expect("maps"));
        let scan = find_vms(&process, &maps.mappings).expect("memory");
        assert_eq!((scan.vms, scan.rejected), (vec![], vec![]));
        let elf = std::fs::read(&build.library_path).expect("a file");
        let LuaLibrary::PucLua { version } = identify_library(&elf) else {
            panic!("{}: {:?}", build.name, identify_library(&elf))
        };
        assert!(version.starts_with(minor), "{version}");
    }
}

#[test]
fn a_program_that_only_speaks_of_luajit_is_not_taken_for_it() {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
    assert_eq!(identify_library(&own), LuaLibrary::None);
    assert!(interpreter_range(&own).is_err());
}

#[test]
fn the_interpreter_is_found_where_the_symbol_table_has_it_also_without_section_headers() {
    let Some(build) = ready(luajit_src(NEWEST)) else {
        return;
    };
    let mut elf = std::fs::read(&build.library_path).expect("a file");
    let symbols = symbols(&build);
    let find = |name: &str| {
        let found = symbols.iter().find(|(_, names)| names.contains(name));
        *found.unwrap_or_else(|| panic!("no symbol {name}")).0
    };
    let expected = find("lj_vm_asm_begin")..find("lj_vm_ffi_call");
    assert_eq!(interpreter_range(&elf), Ok(expected.clone()));
    // e_shoff, e_shnum and e_shstrndx (elf(5)) to 0, as sstrip leaves them.
    elf[0x28..0x30].fill(0);
    elf[0x3c..0x40].fill(0);
    assert_eq!(interpreter_range(&elf), Ok(expected));
}

#[test]
fn a_process_that_ended_is_gone_and_not_another_process() {
    let Some(build) = ready(debian_program("luajit2", Fork::OpenResty)) else {
        return;
    };
    let running = Running::start(&build, "spin.lua", &["30"]);
    let process = running.process();
    let vm = find(&process, &build).vm;
    drop(running);
    assert_eq!(process.read_u64(vm.global_state), Err(MemoryError::Gone));
    assert_eq!(process.maps(), Err(MemoryError::Gone));
    assert!(!vm.is_alive(&process));
    assert_eq!(find_vms(&process, &[]).map(|scan| scan.vms.len()), Ok(0));
    assert!(matches!(
        throughline_target::LiveProcess::open(process.pid()),
        Err(MemoryError::Gone)
    ));
}

#[test]
fn a_vm_whose_memory_was_overwritten_is_refused_with_the_field() {
    let Some(build) = ready(debian_program("luajit2", Fork::OpenResty)) else {
        return;
    };
    let running = Running::start(&build, "spin.lua", &["30"]);
    let process = running.process();
    let found = find(&process, &build);
    let copy = || {
        let mut memory = FixtureMemory::new();
        for mapping in &found.maps.mappings {
            if mapping.is_anonymous()
                && let Ok(bytes) = process.read_vec(mapping.start, mapping.size(), 64 << 20)
            {
                memory.add(mapping.start, bytes);
            }
        }
        memory
    };
    let global = &found.vm.layout.global;
    let scan = find_vms(&copy(), &found.maps.mappings).expect("memory");
    assert_eq!(scan.vms, [found.vm]);
    for (offset, word) in [
        (global.cur_l, "current thread"),
        (global.dispatch + 8 * (97 + 57 + 3), "dispatch table"),
        (global.jit_state + 1632, "JIT parameters"),
    ] {
        let mut memory = copy();
        assert!(memory.write(found.vm.global_state + offset, &0x41_u64.to_le_bytes()));
        if word == "JIT parameters" {
            let maxmcode = found.vm.global_state + offset + 4 * 14;
            assert!(memory.write(maxmcode, &u32::MAX.to_le_bytes()));
        }
        let scan = find_vms(&memory, &found.maps.mappings).expect("memory");
        assert_eq!(scan.vms, []);
        let [
            (
                thread,
                VmReject::UnknownLayout {
                    thread_size: 112,
                    nearest: Some((_, what)),
                },
            ),
        ] = scan.rejected[..]
        else {
            panic!("{:?}", scan.rejected)
        };
        assert_eq!(thread, found.vm.main_thread);
        assert!(what.contains(word), "{what}");
    }
}

#[test]
fn several_vms_in_one_process_are_all_found_also_one_without_libraries() {
    let Some(build) = ready(debian_program("luajit2", Fork::OpenResty)) else {
        return;
    };
    let running = Running::start(&build, "two_vms.lua", &["30"]);
    let process = running.process();
    let maps = parse_maps(&process.maps().expect("maps"));
    let scan = find_vms(&process, &maps.mappings).expect("memory");
    assert_eq!(scan.rejected, []);
    let second = address(&running.facts("second")[0][0]);
    let (seconds, firsts): (Vec<Vm>, Vec<Vm>) =
        scan.vms.iter().partition(|vm| vm.main_thread == second);
    let ([first], [second]): (&[Vm], &[Vm]) = (&firsts, &seconds) else {
        panic!("{:?}", scan.vms)
    };
    assert_eq!(first.first_handler, second.first_handler);
    assert_eq!(first.layout.jit.param, JitParams::At(1632));
    assert_eq!(second.layout.jit.param, JitParams::Unset);
    assert_eq!(trace_count(&process, second), Ok(0));
    assert_eq!(
        machine_code(&process, second).map(|code| code.areas),
        Ok(vec![])
    );
    // It has no globals that could say which numbering holds.
    let names = fast_function_names(&process, second).expect("an empty table");
    assert!(!names.numbering_known());
    assert_eq!(names.name(5), None);
}

#[test]
fn the_vm_of_an_nginx_is_found_in_its_shared_library() {
    const NGINX: &str = "/usr/sbin/nginx";
    if !Path::new("/usr/lib/nginx/modules/ngx_http_lua_module.so").exists() {
        eprintln!("SKIPPED: Debian nginx: the package libnginx-mod-http-lua is not installed");
        return;
    }
    let prefix = tempfile::tempdir().expect("a directory");
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nginx.conf");
    std::os::unix::fs::symlink("/usr/lib/nginx/modules", prefix.path().join("modules"))
        .expect("a link");
    let child = Command::new(NGINX)
        .current_dir(prefix.path())
        .arg("-p")
        .arg(prefix.path())
        .arg("-c")
        .arg(configuration)
        .stdout(Stdio::piped())
        .spawn()
        .expect("nginx runs");
    let running = Running::wait_for("nginx", child);
    let process = running.process();
    let maps = parse_maps(&process.maps().expect("maps"));
    let scan = find_vms(&process, &maps.mappings).expect("memory");
    assert_eq!((scan.vms.len(), scan.rejected), (1, vec![]));
    let library = maps
        .find(scan.vms[0].first_handler)
        .and_then(|mapping| mapping.path_lossy());
    assert!(library.is_some_and(|path| path.contains("libluajit-5.1.so")));
    let names = fast_function_names(&process, &scan.vms[0]).expect("globals");
    assert!(names.numbering_known());
}
