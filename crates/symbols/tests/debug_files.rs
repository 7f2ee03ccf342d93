//! Debug files are found by every way, and only the right ones.

mod independent;

use std::fs;
use std::path::{Path, PathBuf};

use independent::{Program, Tool, compile, parse};
use throughline_symbols::{
    Advice, DebugFileError, DebugFileFinder, DebugInfo, DebugKey, Lookup, ModuleSymbols,
    NameReason, PackageOwners,
};

const C: &str = "__attribute__((noinline)) static int hidden(int x) { return x * 7; }\nint main(int c, char **v) { return hidden(c); }\n";

struct Split {
    program: Program,
    stripped: String,
    debug: String,
    root: tempfile::TempDir,
}

fn split() -> Option<Split> {
    let program = compile("cc", "c", C, &["-O1", "-g", "-Wl,--build-id"])?;
    let (stripped, debug) = (
        program.sibling("stripped"),
        program.sibling("program.debug"),
    );
    Tool("objcopy").lines(&["--only-keep-debug", program.path(), &debug]);
    Tool("strip").lines(&["-s", "-o", &stripped, program.path()]);
    Tool("objcopy").lines(&[&format!("--add-gnu-debuglink={debug}"), &stripped]);
    let root = tempfile::tempdir().unwrap();
    Some(Split {
        program,
        stripped,
        debug,
        root,
    })
}

impl Split {
    fn place(&self, path: &str) {
        let target = self.root.path().join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&self.debug, target).unwrap();
    }

    fn find(&self, finder: &DebugFileFinder) -> Result<PathBuf, DebugFileError> {
        let module = parse(&self.stripped);
        let key = DebugKey {
            build_id: module.build_id(),
            link: module.debug_link(),
            module: Some(Path::new("/opt/app/program")),
        };
        finder.find(key).map(|found| found.path)
    }

    fn build_id_path(&self) -> String {
        let notes = Tool("readelf").lines(&["-n", &self.stripped]);
        let id = notes
            .iter()
            .find_map(|l| l.trim().strip_prefix("Build ID: "))
            .unwrap();
        format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])
    }
}

#[test]
fn a_debug_file_is_found_by_build_id_and_names_what_was_stripped() {
    let Some(split) = split() else { return };
    split.place(&split.build_id_path());
    let finder = DebugFileFinder::new(split.root.path());
    let mut module = parse(&split.stripped);
    let hidden = Tool("nm")
        .lines(&["-S", split.program.path()])
        .iter()
        .find_map(|line| {
            independent::nm_line(line)
                .filter(|s| s.3 == "hidden")
                .map(|s| s.0)
        })
        .unwrap();
    assert_eq!(
        module.lookup(hidden).reason(),
        Some(NameReason::NoSymbolTable)
    );
    assert_eq!(module.debug_info(), DebugInfo::Absent);
    let found = finder
        .find(DebugKey {
            build_id: module.build_id(),
            ..DebugKey::default()
        })
        .unwrap();
    module.add_debug_file(found.file).unwrap();
    let Lookup::Named {
        function, source, ..
    } = module.lookup(hidden)
    else {
        panic!("hidden has no name");
    };
    assert_eq!(function.display, "hidden");
    assert_eq!(source.unwrap().line, Some(1));
}

#[test]
fn a_debug_file_is_found_by_link_beside_the_module_and_below_the_debug_directory() {
    for place in [
        "opt/app/program.debug",
        "opt/app/.debug/program.debug",
        "usr/lib/debug/opt/app/program.debug",
    ] {
        let Some(split) = split() else { return };
        split.place(place);
        let found = split
            .find(&DebugFileFinder::new(split.root.path()))
            .unwrap();
        assert_eq!(found, Path::new("/").join(place));
    }
}

#[test]
fn a_debug_file_is_found_in_the_cache_that_debuginfod_filled() {
    let Some(split) = split() else { return };
    let module = parse(&split.stripped);
    let id = module.build_id().unwrap().to_hex();
    split.place(&format!("cache/{id}/debuginfo"));
    let empty = tempfile::tempdir().unwrap();
    let finder =
        DebugFileFinder::new(empty.path()).with_debuginfod_cache(split.root.path().join("cache"));
    assert!(split.find(&finder).unwrap().ends_with("debuginfo"));
}

#[test]
fn a_debug_file_of_another_build_is_not_taken_and_every_place_is_told() {
    let Some(split) = split() else { return };
    let Some(other) = compile(
        "cc",
        "c",
        "int main() { return 3; }",
        &["-g", "-Wl,--build-id"],
    ) else {
        return;
    };
    for place in [split.build_id_path().as_str(), "opt/app/program.debug"] {
        split.place(place);
        fs::copy(other.path(), split.root.path().join(place)).unwrap();
    }
    match split.find(&DebugFileFinder::new(split.root.path())) {
        Err(DebugFileError::NotFound { tried }) => assert_eq!(tried.len(), 4),
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_of_a_container_do_not_lead_out_of_it_and_a_fifo_does_not_block() {
    let Some(split) = split() else { return };
    let inside = split.root.path().join(split.build_id_path());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    // The absolute path of the right file, outside.
    std::os::unix::fs::symlink(&split.debug, &inside).unwrap();
    let finder = DebugFileFinder::new(split.root.path());
    assert!(matches!(
        split.find(&finder),
        Err(DebugFileError::NotFound { .. })
    ));
    fs::remove_file(&inside).unwrap();
    Tool("mkfifo").lines(&[inside.to_str().unwrap()]);
    assert!(matches!(
        split.find(&finder),
        Err(DebugFileError::NotFound { .. })
    ));
    // A link that stays inside is followed.
    fs::remove_file(&inside).unwrap();
    split.place("store/it.debug");
    std::os::unix::fs::symlink("/store/it.debug", &inside).unwrap();
    split.find(&finder).unwrap();
}

#[test]
fn advice_names_the_package_or_the_path_or_says_that_nothing_can_match() {
    let Some(split) = split() else { return };
    let module = parse(&split.stripped);
    let coverage = module.coverage(Some("gateway"));
    assert!(coverage.functions_by_fde >= 2);
    assert!(coverage.named < coverage.functions_by_fde);
    let id = module.build_id().unwrap().to_hex();
    assert_eq!(
        coverage.advice.unwrap().to_string(),
        format!("install gateway-dbgsym (build-id {id})")
    );
    let path = module.coverage(None).advice.unwrap().to_string();
    assert!(path.ends_with(&split.build_id_path()), "{path}");
    assert_eq!(parse(split.program.path()).coverage(None).advice, None);

    let Some(anonymous) = compile("cc", "c", C, &["-s", "-Wl,--build-id=none"]) else {
        return;
    };
    let advice = parse(anonymous.path()).coverage(Some("gateway")).advice;
    assert_eq!(advice, Some(Advice::RebuildWithBuildId));
}

#[test]
fn owners_are_those_that_dpkg_names() {
    let lists = Path::new("/var/lib/dpkg/info");
    if !lists.is_dir() {
        eprintln!("SKIPPED: dpkg: no {}", lists.display());
        return;
    }
    let libc = fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let owners = PackageOwners::read(lists, std::slice::from_ref(&libc)).unwrap();
    let short = libc
        .strip_prefix("/usr")
        .map_or(libc.clone(), |p| Path::new("/").join(p));
    let said = [&libc, &short]
        .iter()
        .flat_map(|path| Tool("dpkg").lines(&["-S", path.to_str().unwrap()]))
        .next()
        .unwrap();
    assert_eq!(owners.owner(&libc), said.split(':').next());
}

#[test]
fn the_c_library_is_named_by_its_installed_debug_file() {
    let Ok(libc) = fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let mut module = parse(libc.to_str().unwrap());
    let before = module.coverage(Some("libc6"));
    assert!(before.exported_only);
    assert!(
        before
            .advice
            .unwrap()
            .to_string()
            .starts_with("install libc6-dbg (build-id ")
    );
    let key = DebugKey {
        build_id: module.build_id(),
        ..DebugKey::default()
    };
    let Ok(found) = DebugFileFinder::new("/").find(key) else {
        eprintln!("SKIPPED: libc6-dbg: not installed");
        return;
    };
    let debug = found.path.to_str().unwrap().to_owned();
    module.add_debug_file(found.file).unwrap();
    let after = module.coverage(Some("libc6"));
    assert_eq!(after.advice, None);
    assert!(
        after.named > before.named + 100,
        "{} then {}",
        before.named,
        after.named
    );
    assert_names_of_nm(&module, &debug);
}

fn assert_names_of_nm(module: &ModuleSymbols, debug: &str) {
    let nm = Tool("nm").lines(&["-S", debug]);
    let symbols: Vec<_> = nm
        .iter()
        .filter_map(|line| independent::nm_line(line))
        .collect();
    let mut compared = 0;
    for &(start, size, kind, name) in symbols.iter().step_by(9) {
        if !matches!(kind, 't' | 'T' | 'W' | 'i') || size == 0 {
            continue;
        }
        let Lookup::Named {
            function,
            function_start,
            ..
        } = module.lookup(start)
        else {
            panic!("{name} has no name");
        };
        let shown = function.raw.split('@').next().unwrap();
        let alias = symbols
            .iter()
            .any(|s| s.0 == function_start && s.3 == shown);
        assert!(function_start == start && alias, "{shown} for {name}");
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}
