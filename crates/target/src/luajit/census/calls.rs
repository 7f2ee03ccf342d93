//! What a function calls, as far as its bytecode tells: by which name, and which function that is now.
//!
//! Registers are followed along straight code from where a name is fetched to where it is called; at
//! the target of a jump all is forgotten. A callee that comes as an argument, out of a metatable or
//! out of another call is not told.

use std::collections::{BTreeMap, BTreeSet};

use super::super::scan::Vm;
use super::super::{GCT, POINTER_MASK, gct};
use super::ops::{Instruction, Ops};
use crate::memory::{Block, Memory, MemoryError};

/// A function that is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Callee {
    /// By which name, such as `log.observe`, `self:method`, `print`; bytes as the target has them,
    /// escaped where they are no text.
    pub name: String,
    /// Its first instruction, where the name leads to a Lua function now.
    pub bytecode_start: Option<u64>,
}

/// Instructions of one function that are looked at.
const INSTRUCTIONS_MAX: u32 = 1 << 16;
/// Bytes of a name that are kept.
const NAME_MAX: u64 = 64;
/// Fields of a table that are looked through for one name.
const NODES_MAX: u64 = 4096;

/// What the function whose bytecode starts at `bytecode_start` calls, by name. `closure` is one of its
/// closures, by which upvalues and globals are found.
pub fn calls(
    memory: &dyn Memory,
    vm: &Vm,
    bytecode_start: u64,
    closure: Option<u64>,
) -> Result<Vec<Callee>, MemoryError> {
    let function = Function::read(memory, vm, bytecode_start, closure)?;
    let len = 4 * u64::from(function.instructions.min(INSTRUCTIONS_MAX));
    let code: Vec<Instruction> = memory
        .read_vec(bytecode_start, len, len)?
        .chunks_exact(4)
        .map(|word| Instruction(Block(word).u32(0)))
        .collect();
    Ok(function.calls(&code))
}

/// Fields of `GCproto` that no other reader needs (lj_obj.h): the same in all known versions.
mod proto {
    pub const CONSTANTS: u64 = 32;
    pub const UPVALUE_COUNT: u64 = 60;
    pub const UPVALUE_NAMES: u64 = 88;
}
/// `GCfunc.env` and the array of upvalues of a Lua function.
const FUNCTION_ENV: u64 = 16;
const FUNCTION_UPVALUES: u64 = 40;
/// `GCupval.v`.
const UPVALUE_VALUE: u64 = 32;
/// `GCtab.node`, `GCtab.hmask`; a node is {value, key, next}.
const TABLE_NODE: u64 = 40;
const TABLE_MASK: u64 = 52;
const NODE_LEN: u64 = 24;

/// What a register holds: a name, and the value behind it where it could be followed.
#[derive(Debug, Clone)]
struct Held {
    name: String,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Unknown,
    Table(u64),
    /// By the first instruction.
    Function(u64),
}

struct Function<'a> {
    memory: &'a dyn Memory,
    vm: &'a Vm,
    instructions: u32,
    constants: u64,
    upvalue_count: u8,
    upvalue_names: u64,
    closure: Option<u64>,
}

impl<'a> Function<'a> {
    fn read(
        memory: &'a dyn Memory,
        vm: &'a Vm,
        bytecode_start: u64,
        closure: Option<u64>,
    ) -> Result<Function<'a>, MemoryError> {
        let at = &vm.layout.prototype;
        let block = memory.read_vec(bytecode_start.wrapping_sub(at.size), at.size, at.size)?;
        let block = Block(&block);
        Ok(Function {
            memory,
            vm,
            instructions: block.u32(at.sizebc),
            constants: block.u64(proto::CONSTANTS),
            upvalue_count: block.u8(proto::UPVALUE_COUNT),
            upvalue_names: block.u64(proto::UPVALUE_NAMES),
            closure,
        })
    }

    fn calls(&self, code: &[Instruction]) -> Vec<Callee> {
        let ops = Ops::new(self.vm.layout.opcodes);
        let targets = jump_targets(code, &ops);
        let mut registers: BTreeMap<u8, Held> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for (index, &instruction) in code.iter().enumerate().skip(1) {
            if targets.contains(&index) {
                registers.clear();
            }
            let name = ops.name(instruction.op());
            if matches!(name, "CALL" | "CALLM" | "CALLT" | "CALLMT") {
                found.extend(registers.get(&instruction.a()).map(Held::callee));
                registers = registers
                    .split_off(&0)
                    .into_iter()
                    .filter(|(register, _)| *register < instruction.a())
                    .collect();
                continue;
            }
            if keeps_registers(name) {
                continue;
            }
            let held = self.held(name, instruction, &registers);
            match held {
                Some(held) => registers.insert(instruction.a(), held),
                None => registers.remove(&instruction.a()),
            };
        }
        found.into_iter().collect()
    }

    /// What an instruction puts into its register A.
    fn held(
        &self,
        name: &str,
        instruction: Instruction,
        registers: &BTreeMap<u8, Held>,
    ) -> Option<Held> {
        match name {
            "MOV" => registers.get(&instruction.c()).cloned(),
            "UGET" => {
                let index = instruction.d();
                Some(Held {
                    name: self.upvalue_name(index)?,
                    value: self.upvalue(index),
                })
            }
            "GGET" => {
                let key = self.string_constant(instruction.d())?;
                let env = self
                    .closure
                    .and_then(|closure| self.pointer(closure, FUNCTION_ENV));
                Some(Held {
                    name: self.text(key)?,
                    value: env.map_or(Value::Unknown, |table| self.field(table, key)),
                })
            }
            "TGETS" => {
                let key = self.string_constant(u16::from(instruction.c()))?;
                let field = self.text(key)?;
                let table = registers.get(&instruction.b());
                Some(Held {
                    name: match table {
                        Some(table) => format!("{}.{field}", table.name),
                        None => field,
                    },
                    value: match table.map(|table| table.value) {
                        Some(Value::Table(table)) => self.field(table, key),
                        _ => Value::Unknown,
                    },
                })
            }
            "FNEW" => {
                let child = self.constant(instruction.d())?;
                let start = child.wrapping_add(self.vm.layout.prototype.size);
                Some(Held {
                    name: "function".to_owned(),
                    value: Value::Function(start),
                })
            }
            _ => None,
        }
    }

    fn pointer(&self, at: u64, offset: u64) -> Option<u64> {
        let read = self.memory.read_u64(at.wrapping_add(offset)).ok()?;
        Some(read & POINTER_MASK)
    }

    /// Collectable constant `index`: they lie below the middle of the array of constants
    /// (`proto_kgc`).
    fn constant(&self, index: u16) -> Option<u64> {
        let at = self.constants.checked_sub(8 * (u64::from(index) + 1))?;
        self.pointer(at, 0)
    }

    fn string_constant(&self, index: u16) -> Option<u64> {
        let string = self.constant(index)?;
        let tag = self.memory.read_u8(string.wrapping_add(GCT)).ok()?;
        (tag == gct::STRING).then_some(string)
    }

    fn text(&self, string: u64) -> Option<String> {
        let at = &self.vm.layout.string;
        let len = self.memory.read_u32(string.wrapping_add(at.len)).ok()?;
        let len = u64::from(len).min(NAME_MAX);
        let bytes = self
            .memory
            .read_vec(string.wrapping_add(at.data), len, NAME_MAX);
        Some(printable(&bytes.ok()?))
    }

    /// Names of upvalues stand one behind the other, each with a 0 behind it.
    fn upvalue_name(&self, index: u16) -> Option<String> {
        if index >= u16::from(self.upvalue_count) {
            return None;
        }
        let mut at = self.upvalue_names;
        let mut left = index;
        let mut name = Vec::new();
        for _ in 0..(u64::from(index) + 1) * NAME_MAX {
            match (self.memory.read_u8(at).ok()?, left) {
                (0, 0) => return Some(printable(&name)),
                (0, _) => left -= 1,
                (byte, 0) => name.push(byte),
                _ => {}
            }
            at = at.checked_add(1)?;
        }
        None
    }

    fn upvalue(&self, index: u16) -> Value {
        let slot = FUNCTION_UPVALUES + 8 * u64::from(index);
        let value = self
            .closure
            .and_then(|closure| self.pointer(closure, slot))
            .and_then(|upvalue| self.pointer(upvalue, UPVALUE_VALUE))
            .and_then(|value| self.memory.read_u64(value).ok());
        value.map_or(Value::Unknown, |value| self.value(value))
    }

    /// What a tagged value is; the tag in front of the pointer is the complement of the object's own.
    fn value(&self, value: u64) -> Value {
        let (tag, pointer) = (0x1_ffff ^ (value >> 47), value & POINTER_MASK);
        let lua = |function: u64| {
            let at = &self.vm.layout.function;
            let ffid = self.memory.read_u8(function.wrapping_add(at.ffid));
            (ffid == Ok(0))
                .then(|| self.pointer(function, at.pc))
                .flatten()
        };
        match u8::try_from(tag) {
            Ok(gct::TABLE) => Value::Table(pointer),
            Ok(gct::FUNCTION) => lua(pointer).map_or(Value::Unknown, Value::Function),
            _ => Value::Unknown,
        }
    }

    /// The value of a table's field: strings are unique, so their addresses are compared.
    fn field(&self, table: u64, key: u64) -> Value {
        let read = || {
            let nodes = self.pointer(table, TABLE_NODE)?;
            let mask = self.memory.read_u32(table.wrapping_add(TABLE_MASK)).ok()?;
            let len = NODE_LEN * (u64::from(mask) + 1).min(NODES_MAX);
            let nodes = self.memory.read_vec(nodes, len, len).ok()?;
            let tagged = (0x1_ffff ^ u64::from(gct::STRING)) << 47 | key;
            let node = nodes
                .chunks_exact(NODE_LEN as usize)
                .find(|node| Block(node).u64(8) == tagged)?;
            Some(self.value(Block(node).u64(0)))
        };
        read().unwrap_or(Value::Unknown)
    }
}

impl Held {
    fn callee(&self) -> Callee {
        Callee {
            name: self.name.clone(),
            bytecode_start: match self.value {
                Value::Function(start) => Some(start),
                Value::Unknown | Value::Table(_) => None,
            },
        }
    }
}

/// Bytecodes that write no register: comparisons and tests, stores, jumps, returns.
fn keeps_registers(name: &str) -> bool {
    let prefixes = [
        "IS", "USET", "GSET", "TSET", "RET", "JMP", "LOOP", "ILOOP", "JLOOP",
    ];
    // `ISTC` and `ISFC` copy.
    prefixes.iter().any(|prefix| name.starts_with(prefix)) && !matches!(name, "ISTC" | "ISFC")
}

/// Indexes of the instructions that are jumped to.
fn jump_targets(code: &[Instruction], ops: &Ops) -> BTreeSet<usize> {
    let jumps = |name: &str| {
        matches!(
            name,
            "JMP" | "FORI" | "JFORI" | "FORL" | "IFORL" | "ITERL" | "IITERL" | "ISNEXT" | "UCLO"
        )
    };
    let target = |(index, instruction): (usize, &Instruction)| {
        let distance = isize::try_from(instruction.jump()).ok()?;
        jumps(ops.name(instruction.op()))
            .then(|| (index + 1).checked_add_signed(distance))
            .flatten()
    };
    code.iter().enumerate().filter_map(target).collect()
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|character| {
            let plain = !character.is_control();
            let escaped = (!plain).then(|| character.escape_default());
            plain
                .then_some(character)
                .into_iter()
                .chain(escaped.into_iter().flatten())
        })
        .collect()
}
