//! Categories: what sort of code a running thread was in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What sort of code a sample of a running thread was in. Every such sample is in exactly one.
///
/// LuaJIT's own sorts follow its VM states (`LJ_VMST_*` of lj_obj.h) where it keeps one, as its profiler does (lj_profile.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// LuaJIT's interpreter: bytecode handlers and fast functions.
    Interpreter,
    /// Machine code of traces.
    Jit,
    /// The garbage collector at work, with all that it calls to free and to sweep.
    Gc,
    /// The Lua allocator.
    Allocator,
    /// The JIT compiler: recording, optimising, assembling, trace exits.
    JitCompiler,
    /// Functions of the Lua C API and what they call in LuaJIT, on behalf of C code outside of it.
    LuaCApi,
    /// Code called through the FFI, and LuaJIT's C code that converts values for it.
    Ffi,
    /// C code of LuaJIT that runs for Lua code: tables, strings, metamethods, library functions.
    LuaRuntime,
    /// nginx itself.
    Nginx,
    /// C code of modules: of nginx, or loaded by Lua's `require`.
    Module,
    /// The C library and the loader.
    Libc,
    /// Anything else: other libraries, a program that is no nginx, code of other compilers.
    Other,
    /// Kernel: sockets and network protocols.
    KernelNetwork,
    /// Kernel: files and their systems.
    KernelFilesystem,
    /// Kernel: page faults and memory mappings.
    KernelMemory,
    /// Kernel: scheduling, futexes, sleeping.
    KernelScheduler,
    /// Kernel: waiting for events (epoll, poll, select).
    KernelPolling,
    /// Kernel: hardware interrupts and what follows them, whoever was running.
    KernelInterrupt,
    /// Kernel: the rest.
    KernelOther,
    /// Kernel: probes on user code, such as the one that counts requests here.
    KernelTracing,
}

impl Category {
    /// All categories, in the order of their codes in the case file.
    pub const ALL: [Self; 20] = [
        Self::Interpreter,
        Self::Jit,
        Self::Gc,
        Self::Allocator,
        Self::JitCompiler,
        Self::LuaCApi,
        Self::Ffi,
        Self::LuaRuntime,
        Self::Nginx,
        Self::Module,
        Self::Libc,
        Self::Other,
        Self::KernelNetwork,
        Self::KernelFilesystem,
        Self::KernelMemory,
        Self::KernelScheduler,
        Self::KernelPolling,
        Self::KernelInterrupt,
        Self::KernelOther,
        Self::KernelTracing,
    ];

    /// Why a running sample may have none.
    pub const UNKNOWN_REASON: &str = "category unknown: recorded by an older version or imported";

    /// Stable name, as in JSON; all of the kernel is `kernel`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interpreter => "interpreter",
            Self::Jit => "jit",
            Self::Gc => "gc",
            Self::Allocator => "allocator",
            Self::JitCompiler => "jit_compiler",
            Self::LuaCApi => "lua_c_api",
            Self::Ffi => "ffi",
            Self::LuaRuntime => "lua_runtime",
            Self::Nginx => "nginx",
            Self::Module => "module",
            Self::Libc => "libc",
            Self::Other => "other",
            _ => "kernel",
        }
    }

    /// The part of the kernel; `None` outside of it.
    #[must_use]
    pub fn subsystem(self) -> Option<&'static str> {
        Some(match self {
            Self::KernelNetwork => "network",
            Self::KernelFilesystem => "filesystem",
            Self::KernelMemory => "memory",
            Self::KernelScheduler => "scheduler",
            Self::KernelPolling => "polling",
            Self::KernelInterrupt => "interrupt",
            Self::KernelOther => "other",
            Self::KernelTracing => "tracing",
            _ => return None,
        })
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.subsystem() {
            Some(part) => write!(f, ": {part}"),
            None => Ok(()),
        }
    }
}

/// A set of categories: bit n stands for the n-th of [`Category::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CategorySet(pub u32);

impl CategorySet {
    /// No category.
    pub const EMPTY: Self = Self(0);

    /// The set with one more.
    #[must_use]
    pub const fn with(self, category: Category) -> Self {
        Self(self.0 | 1 << category as u32)
    }

    /// Whether a category is in the set.
    #[must_use]
    pub fn contains(self, category: Category) -> bool {
        self.0 & (1 << category as u32) != 0
    }

    /// Whether there is no category in the set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The category of one sample, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Classified {
    /// The category it counts in.
    pub category: Category,
    /// Others that it may belong to as well, because nothing tells them apart here (a library without symbols). The share of a
    /// category is exact when no sample outside of it may belong to it, and a lower bound otherwise.
    pub may_be: CategorySet,
}

impl Classified {
    /// A sample that can be in no other category.
    #[must_use]
    pub fn surely(category: Category) -> Self {
        Self {
            category,
            may_be: CategorySet::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_of_a_set_is_the_place_of_its_category() {
        for (place, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(CategorySet::EMPTY.with(category).0, 1 << place);
            assert!(CategorySet(1 << place).contains(category));
        }
    }

    #[test]
    fn the_kernel_is_one_category_with_parts() {
        for category in Category::ALL {
            assert_eq!(category.subsystem().is_some(), category.name() == "kernel");
        }
        assert_eq!(Category::KernelNetwork.to_string(), "kernel: network");
    }
}
