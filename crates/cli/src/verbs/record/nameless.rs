//! Before a recording: which code will have no names, and what would name it.

use throughline_host::Process;
use throughline_profile::escape;
use throughline_record::{ModuleCoverage, ProgramFiles, symbol_coverage};

/// Modules that are named; the rest are counted. The ones with the least names come first.
const MODULES_SHOWN: usize = 6;
/// Processes that are looked at; more of one service map the same files.
const PROCESSES_MAX: usize = 64;

/// One line for each module that lacks names, with what would name it; none when all code has names.
pub fn remarks(targets: &[Process], files: &mut ProgramFiles) -> Vec<String> {
    let pids: Vec<u32> = targets
        .iter()
        .take(PROCESSES_MAX)
        .map(|target| target.pid)
        .collect();
    let modules: Vec<ModuleCoverage> = symbol_coverage(&pids, files)
        .into_iter()
        .filter(|module| module.advice.is_some() || module.unreadable.is_some())
        .collect();
    let mut lines: Vec<String> = modules.iter().take(MODULES_SHOWN).map(line).collect();
    if modules.len() > MODULES_SHOWN {
        lines.push(format!(
            "and {} more modules that lack names",
            modules.len() - MODULES_SHOWN
        ));
    }
    lines
}

fn line(module: &ModuleCoverage) -> String {
    let mut text = module.path.clone();
    match (&module.unreadable, module.named_share) {
        (Some(reason), _) => text += &format!(": no names, {reason}"),
        (None, Some(share)) => text += &format!(": names for {:.0} % of its code", share * 100.0),
        (None, None) => text += ": few or no names",
    }
    if module.luajit {
        text += " (LuaJIT's bytecode handlers are named from the VM)";
    }
    if let Some(advice) = &module.advice {
        text += &format!("; {advice}");
    }
    escape(&text).into_owned()
}
