//! `throughline jit`: what LuaJIT's compiler makes of a running program.

mod compare;
mod document;
mod look;
mod watch;

use anyhow::Result;
use throughline_analyses::jit::{JitDocument, SCHEMA, WithoutVm};
use throughline_host::Process;
use throughline_record::FunctionNames;
use throughline_target::MemoryError;

use crate::args::{JitArgs, JitVerb};
use crate::failure::Outcome;
use crate::output::{self, TOOL, Voice};
use crate::verbs::targets::{Selection, proc_is_ours};

use look::Looked;

pub fn run(args: JitArgs) -> Result<Outcome> {
    if let Some(JitVerb::Diff(args)) = args.verb {
        return compare::run(&args);
    }
    let voice = Voice::from(&args.voice);
    proc_is_ours()?;
    let processes = Selection::from(args.target).find()?;
    let mut names = FunctionNames::default();
    let mut document = JitDocument {
        schema: SCHEMA.to_owned(),
        tool: TOOL.to_owned(),
        ..JitDocument::default()
    };
    match args.window {
        Some(window) => {
            document.events = Some(watch::watch(
                &processes,
                window,
                args.interval,
                voice,
                &mut names,
            )?);
        }
        None => {
            document.events_reason =
                Some("one look; watch with --for to see what happens".to_owned())
        }
    }
    for process in &processes {
        add(&mut document, process, &mut names)?;
    }
    if voice.json {
        output::json(&document)?;
    } else {
        output::text(&document.text())?;
    }
    let torn = document
        .vm
        .iter()
        .any(|vm| !vm.changed_while_read.is_empty());
    Ok(if document.vm.is_empty() || torn {
        Outcome::NotEnoughData
    } else {
        Outcome::Done
    })
}

/// Looks at every VM of a process.
///
/// # Errors
/// When it may not be read; a process that has ended is one without a VM.
fn add(document: &mut JitDocument, process: &Process, names: &mut FunctionNames) -> Result<()> {
    let without = |reason: String| WithoutVm {
        pid: process.pid,
        reason,
    };
    let looked = match look::look(process.pid) {
        Ok(looked) => looked,
        Err(error @ MemoryError::Permission) => {
            return Err(anyhow::Error::new(error).context(format!("pid {}", process.pid)));
        }
        Err(error) => {
            document.without_vm.push(without(error.to_string()));
            return Ok(());
        }
    };
    for Looked { vm, state } in looked.vms {
        match state {
            Ok(state) => document
                .vm
                .push(document::vm_state(process.pid, &vm, &state, names)),
            Err(error) => {
                let place = format!("VM {:#x}: {error}", vm.global_state);
                document.without_vm.push(without(place));
            }
        }
    }
    for reject in looked.rejected {
        document.without_vm.push(without(reject));
    }
    Ok(())
}
