/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records shared with user space. The Rust crate throughline-wire is the original: it makes the constants
 * (wire_constants.h) and asserts every size and offset of these structs (wire_assertions.h).
 */
#pragma once

#include "wire_constants.h"

struct lua_frame {
	__u64 code, link, continuation_pc;
	__u32 ffid, state;
};

struct lua_state_record {
	__u64 address, base, cframe, frames;
};

struct sample_header {
	__u32 kind, faults;
	__u64 time_ns;
	__u32 pid, tid;
	char comm[16];
	__u64 ip, sp, bp, bx, r14;
	__u64 blocked_ns, runnable_ns;
	__u32 waker_pid, waker_tid;
	char waker_comm[16];
	__u32 waker_interrupt, task_state, in_kernel, padding;
	__u64 vm, jit_base;
	__s32 vm_state;
	__u32 base_source;
	__u32 stack_len, lua_len, kernel_len, states_len;
	struct lua_state_record states[LUA_STATES_MAX];
};

struct process_event {
	__u32 kind, event;
	__u64 time_ns;
	__u32 pid, parent;
	char comm[16];
	__u64 cpu_ns;
};

struct settings {
	__u64 stack_bytes;
	__u64 min_block_ns, max_block_ns;
	__u64 wakeup_bytes;
	__u32 off_cpu, follow_forks;
};

struct vm_entry {
	__u64 global_state, interpreter_start, interpreter_end;
	__u32 cur_l, vmstate;
};

struct target_entry {
	__u32 recorded, vms_len;
	__u64 interpreter_start, interpreter_end;
	struct vm_entry vms[VMS_MAX];
};

struct thread_account {
	__u64 left_ns, woken_ns;
	__u32 pid, task_state;
	__u32 waker_pid, waker_tid;
	char waker_comm[16];
	__u64 kept_ns, kept_count, short_ns, short_count, long_ns, long_count;
	__u64 unseen_ns, run_first_ns, run_last_ns;
	__u64 since_ns, ended_ns;
	__u32 held, tid, waker_interrupt, padding;
};

struct kernel_symbol {
	__u64 address;
	char text[KERNEL_SYMBOL_TEXT];
};

#include "wire_assertions.h"
