//! Parameters of the JIT compiler, as `jit.opt.start` sets them.

use super::super::layout::JitParams;
use super::super::scan::Vm;
use crate::memory::{Block, Memory, MemoryError};

/// In their order (`JIT_PARAMDEF`, lj_jit.h), which is the same in all known versions.
const NAMES: [&str; 15] = [
    "maxtrace",
    "maxrecord",
    "maxirconst",
    "maxside",
    "maxsnap",
    "minstitch",
    "hotloop",
    "hotexit",
    "tryside",
    "instunroll",
    "loopunroll",
    "callunroll",
    "recunroll",
    "sizemcode",
    "maxmcode",
];

/// One parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitParameter {
    /// Its name in `jit.opt.start`.
    pub name: &'static str,
    /// Its value.
    pub value: i32,
}

/// All parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters(pub Vec<JitParameter>);

impl Parameters {
    /// The value of one; 0 for a name that is none.
    pub fn value(&self, name: &str) -> i32 {
        let found = self.0.iter().find(|parameter| parameter.name == name);
        found.map_or(0, |parameter| parameter.value)
    }

    /// Traces that fit the table: numbers run from 1 to `maxtrace`, within bounds (`trace_findfree`,
    /// lj_trace.c).
    pub fn traces_max(&self) -> u32 {
        let asked = u32::try_from(self.value("maxtrace")).unwrap_or(u32::MAX);
        asked.saturating_add(1).clamp(2, 65_535) - 1
    }

    /// Bytes of machine code that may be allocated.
    pub fn machine_code_max(&self) -> u64 {
        u64::try_from(self.value("maxmcode")).unwrap_or(0) << 10
    }

    /// Bytes of one area of machine code.
    pub fn machine_code_area(&self) -> u64 {
        u64::try_from(self.value("sizemcode")).unwrap_or(0) << 10
    }
}

/// Reads them; `None` when they were never set.
pub fn parameters(memory: &dyn Memory, vm: &Vm) -> Result<Option<Parameters>, MemoryError> {
    let JitParams::At(offset) = vm.layout.jit.param else {
        return Ok(None);
    };
    let len = 4 * NAMES.len() as u64;
    let block = memory.read_vec(vm.jit_state().wrapping_add(offset), len, len)?;
    let values = (0..).map(|index| Block(&block).u32(4 * index).cast_signed());
    let parameters = NAMES.into_iter().zip(values);
    Ok(Some(Parameters(
        parameters
            .map(|(name, value)| JitParameter { name, value })
            .collect(),
    )))
}
