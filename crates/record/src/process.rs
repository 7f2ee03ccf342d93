//! One recorded process: its memory, its mappings, its VMs, and the names found so far.

use std::ops::Range;

use throughline_profile::{LuaVm as LuaVmFacts, Target};
use throughline_target::{LiveProcess, LuaLibrary, MemoryError, References, find_vms};
use throughline_units::Nanos;
use throughline_wire::limits::VMS_MAX;
use throughline_wire::{TargetEntry, VmEntry};

use crate::address_space::AddressSpace;
use crate::image::Images;
use crate::lua_vm::LuaVm;
use crate::native_names::NativeNames;
use crate::sys;

/// Mappings are read again at most this often when an address is not known: soon while a program still loads its libraries, less
/// often when the last reading brought nothing new.
const MAPPINGS_CHANGING: Nanos = Nanos(5_000_000);
const MAPPINGS_TRUSTED: Nanos = Nanos(100_000_000);
/// The search for VMs reads all anonymous memory; it is repeated at most this often.
const VM_SEARCH_INTERVAL: Nanos = Nanos(1_000_000_000);

/// A recorded process.
pub struct Process {
    /// Facts for the capture.
    pub facts: Target,
    /// Its memory; bound to the program that it ran when opened.
    pub memory: LiveProcess,
    /// Its executable mappings.
    pub space: AddressSpace,
    /// Its VMs.
    pub vms: Vec<LuaVm>,
    /// Interpreters that it maps, VM or not.
    pub interpreters: Vec<Range<u64>>,
    /// Code of Lua libraries whose VM cannot be read.
    pub unreadable: Vec<Range<u64>>,
    /// Names of native addresses.
    pub names: NativeNames,
    /// Whether its VMs should be looked for again.
    pub vm_search_due: bool,
    /// CPU time that it had used when its samples began; 0 for a child that was recorded from its start.
    pub cpu_before: Nanos,
    mappings_read: Nanos,
    mappings_trusted: Nanos,
    vms_searched: Nanos,
}

impl Process {
    /// Opens a live process and looks for its VMs.
    ///
    /// # Errors
    /// The error of the target's memory.
    pub fn open(pid: u32, now: Nanos, images: &mut Images) -> Result<Self, MemoryError> {
        let memory = LiveProcess::open(pid)?;
        let space = AddressSpace::read(&memory, images)?;
        let mut process = Self {
            facts: Target {
                pid,
                comm: comm(pid),
                exe: exe(pid),
                ..Target::default()
            },
            memory,
            space,
            vms: Vec::new(),
            interpreters: Vec::new(),
            unreadable: Vec::new(),
            names: NativeNames::default(),
            vm_search_due: false,
            cpu_before: Nanos(0),
            mappings_read: now,
            mappings_trusted: MAPPINGS_CHANGING,
            vms_searched: Nanos(0),
        };
        process.find_lua(now);
        Ok(process)
    }

    /// Counts its CPU time from now on.
    pub fn begin_cpu_time(&mut self) {
        self.cpu_before = sys::process_cpu_time(self.memory.pid()).unwrap_or(Nanos(0));
    }

    /// Notes the CPU time that it has used since then; one that has just ended keeps the last.
    pub fn read_cpu_time(&mut self) {
        if let Some(now) = sys::process_cpu_time(self.memory.pid()) {
            self.facts.cpu_ns = Some((now - self.cpu_before).0);
        }
    }

    /// Reads the mappings again, when that was not done just now; says whether they changed.
    pub fn refresh(&mut self, now: Nanos, images: &mut Images) -> bool {
        if now - self.mappings_read < self.mappings_trusted {
            return false;
        }
        self.mappings_read = now;
        let Ok(space) = AddressSpace::read(&self.memory, images) else {
            return false;
        };
        if space.same_code(&self.space) {
            // Anonymous memory and the mappings themselves may still differ.
            self.mappings_trusted = MAPPINGS_TRUSTED;
            self.space = space;
            return true;
        }
        self.mappings_trusted = MAPPINGS_CHANGING;
        self.space = space;
        self.names.clear();
        self.vm_search_due = true;
        true
    }

    /// Looks for VMs when that is due; says whether the list changed.
    pub fn search_vms_if_due(&mut self, now: Nanos, images: &mut Images) -> bool {
        if !self.vm_search_due || now - self.vms_searched < VM_SEARCH_INTERVAL {
            return false;
        }
        if let Ok(space) = AddressSpace::read(&self.memory, images) {
            if !space.same_code(&self.space) {
                self.names.clear();
            }
            self.space = space;
        }
        let before: Vec<u64> = self.vms.iter().map(|vm| vm.vm.global_state).collect();
        self.find_lua(now);
        before
            != self
                .vms
                .iter()
                .map(|vm| vm.vm.global_state)
                .collect::<Vec<_>>()
    }

    /// Fills `vms`, `interpreters` and the facts about them.
    fn find_lua(&mut self, now: Nanos) {
        self.vms_searched = now;
        self.vm_search_due = false;
        self.interpreters.clear();
        self.unreadable.clear();
        self.facts.lua_unreadable = None;
        let mut version = String::new();
        let mut luajit = false;
        for mapped in self.space.images() {
            let Ok(image) = &mapped.image else { continue };
            if let LuaLibrary::PucLua { .. }
            | LuaLibrary::LuaJit {
                references: References::Compact,
                ..
            } = image.lua()
            {
                self.unreadable.push(mapped.start..mapped.end);
            }
            match image.lua() {
                LuaLibrary::None => {}
                LuaLibrary::PucLua { version } => {
                    self.facts.lua_unreadable = Some(format!(
                        "{} is PUC Lua {version}, whose frames cannot be read; its C frames are recorded",
                        mapped.path
                    ));
                }
                LuaLibrary::LuaJit {
                    references: References::Compact,
                    version,
                } => {
                    self.facts.lua_unreadable = Some(format!(
                        "{} is {version} without GC64 (32-bit references), which cannot be read; its C frames are recorded",
                        mapped.path
                    ));
                }
                LuaLibrary::LuaJit { version: found, .. } => {
                    luajit = true;
                    version.clone_from(found);
                    if let Some(range) = image.interpreter() {
                        self.interpreters.push(
                            range.start.wrapping_add(mapped.bias)
                                ..range.end.wrapping_add(mapped.bias),
                        );
                    }
                }
            }
        }
        if !luajit {
            self.vms.clear();
            self.facts.lua_vms.clear();
            return;
        }
        let Ok(scan) = find_vms(&self.memory, &self.space.mappings) else {
            return;
        };
        let mut vms = Vec::new();
        for vm in scan.vms {
            if let Some(known) = self
                .vms
                .iter()
                .position(|old| old.vm.global_state == vm.global_state)
            {
                vms.push(self.vms.swap_remove(known));
                continue;
            }
            let interpreter = self
                .interpreters
                .iter()
                .find(|range| range.contains(&vm.first_handler))
                .cloned();
            if let Some(interpreter) = interpreter {
                vms.push(LuaVm::new(&self.memory, vm, interpreter));
            }
        }
        self.vms = vms;
        self.facts.lua_vms = self
            .vms
            .iter()
            .map(|vm| LuaVmFacts {
                global_state: vm.vm.global_state,
                version: version.clone(),
                layout: vm.vm.layout.name.to_owned(),
                gc64: true,
            })
            .collect();
        if self.vms.is_empty()
            && let Some((_, reason)) = scan.rejected.first()
        {
            self.facts.lua_unreadable = Some(reason.to_string());
        }
    }

    /// What the BPF program must know of the process.
    #[must_use]
    pub fn entry(&self) -> TargetEntry {
        let mut entry = TargetEntry {
            recorded: 1,
            ..TargetEntry::default()
        };
        for (slot, vm) in entry.vms.iter_mut().zip(self.vms.iter().take(VMS_MAX)) {
            *slot = VmEntry {
                global_state: vm.vm.global_state,
                interpreter_start: vm.interpreter.start,
                interpreter_end: vm.interpreter.end,
                cur_l: vm.vm.layout.global.cur_l as u32,
                vmstate: vm.vm.layout.global.vmstate as u32,
            };
            entry.vms_len += 1;
        }
        let used = &entry.vms[..entry.vms_len as usize];
        entry.interpreter_start = used
            .iter()
            .map(|vm| vm.interpreter_start)
            .min()
            .unwrap_or(0);
        entry.interpreter_end = used.iter().map(|vm| vm.interpreter_end).max().unwrap_or(0);
        entry
    }
}

/// The kernel's name of a process.
#[must_use]
pub fn comm(pid: u32) -> String {
    std::fs::read(format!("/proc/{pid}/comm"))
        .map(|bytes| {
            String::from_utf8_lossy(&bytes)
                .trim_end_matches('\n')
                .to_owned()
        })
        .unwrap_or_default()
}

/// The path of its program.
#[must_use]
pub fn exe(pid: u32) -> String {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Its parent, 0 when it has none that is visible.
#[must_use]
pub fn parent(pid: u32) -> u32 {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| {
            status
                .lines()
                .find_map(|l| l.strip_prefix("PPid:")?.trim().parse().ok())
        })
        .unwrap_or(0)
}

/// Its threads.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| {
            entries
                .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}
