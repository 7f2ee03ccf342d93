/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel structs that are read, with the fields that are read. Offsets are relocated by BTF when the
 * program is loaded (CO-RE), so the order and the gaps here mean nothing.
 */
#pragma once

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	unsigned int level;
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct mm_struct {
	unsigned long start_stack;
};

struct thread_struct {
	unsigned long fsbase;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	unsigned long long sum_sched_runtime; /* of threads that ended */
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct {
	unsigned int __state;
	int pid;
	int tgid;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct thread_struct thread;
	struct sched_entity se;
	int on_cpu;
	char comm[16];
};

struct bpf_iter__task {
	struct task_struct *task;
};

#pragma clang attribute pop

/* x86-64 user registers in the order of the user-space ABI (arch/x86/include/uapi/asm/ptrace.h). */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct bpf_perf_event_data {
	struct pt_regs regs;
	unsigned long long sample_period;
	unsigned long long addr;
};

struct linux_binprm;
