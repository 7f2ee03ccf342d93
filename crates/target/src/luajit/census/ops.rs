//! Bytecodes by number, and those that the JIT compiler patches.

use super::super::handlers::{FUNCTION_HEADERS, bytecode_names};
use super::super::layout::Opcodes;

/// Names by number.
pub(super) struct Ops(Vec<&'static str>);

impl Ops {
    pub fn new(opcodes: Opcodes) -> Ops {
        let mut names = bytecode_names(opcodes.funcf);
        names.truncate(usize::from(opcodes.funcf));
        names.extend(FUNCTION_HEADERS.split(' '));
        Ops(names)
    }

    /// The name of a bytecode; "?" for a number that the version does not have.
    pub fn name(&self, op: u8) -> &'static str {
        self.0.get(usize::from(op)).copied().unwrap_or("?")
    }

    /// For each number whether it is one that is never counted.
    pub fn given_up(&self) -> [bool; 256] {
        let mut table = [false; 256];
        for (entry, name) in table.iter_mut().zip(&self.0) {
            *entry = is_given_up(name);
        }
        table
    }
}

/// The bytecode that stood there before it was patched. A `JLOOP` may stand for `ITERN` or a return
/// too; of those only the trace knows.
pub(super) fn plain(name: &'static str) -> &'static str {
    match name {
        "JFORI" => "FORI",
        "IFORL" | "JFORL" => "FORL",
        "IITERL" | "JITERL" => "ITERL",
        "ILOOP" | "JLOOP" => "LOOP",
        "IFUNCF" | "JFUNCF" => "FUNCF",
        "IFUNCV" | "JFUNCV" => "FUNCV",
        other => other,
    }
}

/// True for the bytecodes that are never counted.
fn is_given_up(name: &str) -> bool {
    matches!(name, "IFORL" | "IITERL" | "ILOOP" | "IFUNCF" | "IFUNCV")
}

/// Fields of an instruction (`BCIns`, lj_bc.h).
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction(pub u32);

impl Instruction {
    pub fn op(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    pub fn a(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    pub fn b(self) -> u8 {
        self.0.to_le_bytes()[3]
    }

    pub fn c(self) -> u8 {
        self.0.to_le_bytes()[2]
    }

    pub fn d(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Instructions from the next one to the target of a jump (`bc_j`).
    pub fn jump(self) -> i64 {
        i64::from(self.d()) - 0x8000
    }
}
