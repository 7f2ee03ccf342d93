/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What runs in the kernel: a sampling clock for running threads, the scheduler's switches for waiting ones, and the
 * life of the processes. Each program fills a struct sample_header and what follows it (wire.h) and sends it through
 * the ring. Nothing here changes anything outside its own maps.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "kernel.h"
#include "wire.h"
#include "maps.h"
#include "symbols.h"
#include "namespace.h"
#include "lua.h"
#include "capture.h"
#include "requests.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TASK_DEAD 0x80
#define USER_CODE_SEGMENT_BITS 3

SEC("perf_event")
int on_clock(struct bpf_perf_event_data *context)
{
	__u64 begin = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = process_id(task), zero = 0;
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target || !target->recorded)
		return 0;
	count(COUNTER_ON_CPU_TAKEN, 1);
	struct buffer *b = bpf_map_lookup_elem(&on_cpu_buffers, &zero);
	if (!b)
		return 0;

	/* An interrupt saves the user's registers where a system call does: at the top of the task's kernel stack. */
	struct pt_regs user;
	if (bpf_probe_read_kernel(&user, sizeof(user), (void *)bpf_task_pt_regs(task))) {
		count(COUNTER_ON_CPU_NO_REGISTERS, 1);
		return 0;
	}
	b->header.kind = KIND_ON_CPU;
	b->header.time_ns = begin;
	b->header.in_kernel = !(context->regs.cs & USER_CODE_SEGMENT_BITS);
	b->header.blocked_ns = 0;
	b->header.runnable_ns = 0;
	b->header.waker_tid = 0;
	b->header.waker_pid = 0;
	b->header.task_state = 0;
	capture(b, task, target, &user, 0);
	/* Read again: a value that lives across the capture would have the verifier go through it twice. */
	if (b->header.in_kernel) {
		__u64 offset = kernel_offset(&b->header);
		long size = -1;
		if (offset <= DATA_MAX - KERNEL_FRAMES_MAX * 8)
			size = bpf_get_stack(context, b->data + offset, KERNEL_FRAMES_MAX * 8, 0);
		if (size > 0)
			b->header.kernel_len = size / 8;
		else
			b->header.faults |= FAULT_NO_KERNEL_STACK;
	}
	if (send(b, record_size(&b->header)))
		count(COUNTER_ON_CPU_RING_FULL, 1);
	else
		count(COUNTER_ON_CPU_SENT, 1);
	count(COUNTER_ON_CPU_NS, bpf_ktime_get_ns() - begin);
	return 0;
}

static __always_inline struct thread_account *account_of(struct task_struct *task, __u32 pid, __u64 now)
{
	__u32 id = task->pid;
	struct thread_account *known = bpf_map_lookup_elem(&threads, &id);
	if (known)
		return known;
	struct thread_account fresh = {
		.pid = pid, .tid = thread_id(task), .since_ns = now, .run_first_ns = task->se.sum_exec_runtime,
	};
	if (bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST))
		count(COUNTER_THREAD_TABLE_FULL, 1);
	return bpf_map_lookup_elem(&threads, &id);
}

/* A thread that left its core got it back at `now`: the length of its wait is known. */
static __always_inline void end_wait(struct task_struct *task, struct thread_account *account, __u64 now, int has_kernel_stack)
{
	__u64 left = account->left_ns, blocked = now - left;
	account->left_ns = 0;
	if (left == account->since_ns && !account->held) {
		account->unseen_ns += blocked;
		return;
	}
	if (blocked < settings.min_block_ns) {
		account->short_ns += blocked;
		account->short_count++;
		return;
	}
	if (blocked > settings.max_block_ns) {
		account->long_ns += blocked;
		account->long_count++;
		return;
	}
	account->kept_ns += blocked;
	account->kept_count++;
	count(COUNTER_OFF_CPU_TAKEN, 1);
	struct buffer *b = bpf_task_storage_get(&off_cpu_buffers, task, 0, 0);
	if (!b || !account->held) {
		count(b ? COUNTER_OFF_CPU_NO_REGISTERS : COUNTER_OFF_CPU_NO_SLOT, 1);
		return;
	}
	account->held = 0;
	struct sample_header *h = &b->header;
	h->blocked_ns = blocked;
	h->runnable_ns = account->woken_ns ? now - account->woken_ns : ~0ULL;
	h->task_state = account->task_state;
	h->waker_pid = account->waker_pid;
	h->waker_tid = account->waker_tid;
	h->waker_interrupt = account->waker_interrupt;
	__builtin_memcpy(h->waker_comm, account->waker_comm, sizeof(h->waker_comm));
	__u64 offset = kernel_offset(h);
	long size = -1;
	if (has_kernel_stack && offset <= DATA_MAX - KERNEL_FRAMES_MAX * 8)
		size = bpf_get_task_stack(task, b->data + offset, KERNEL_FRAMES_MAX * 8, 0);
	if (size > 0)
		h->kernel_len = size / 8;
	else
		h->faults |= FAULT_NO_KERNEL_STACK;
	if (send(b, record_size(h)))
		count(COUNTER_OFF_CPU_RING_FULL, 1);
	else
		count(COUNTER_OFF_CPU_SENT, 1);
}

/* A thread gets a core. */
static __always_inline void arrive(struct task_struct *task, __u64 now)
{
	__u32 id = task->pid;
	struct thread_account *account = bpf_map_lookup_elem(&threads, &id);
	if (account && account->left_ns)
		end_wait(task, account, now, 1);
}

/* The current task leaves its core: its stack is readable now and never again. */
static __always_inline void leave(struct task_struct *task, __u64 now)
{
	__u32 pid = process_id(task);
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target || !target->recorded)
		return;
	__u32 state = task->__state;
	struct thread_account *account = account_of(task, pid, now);
	if (!account)
		return;
	/*
	 * It left before and leaves again: the switch by which it got its core was not seen (there are kernels that do not
	 * report every one). The scheduler knows for how long it ran since then. Its kernel stack is another one by now.
	 */
	__u64 run = task->se.sum_exec_runtime, ran = run - account->run_last_ns;
	if (account->left_ns && now - account->left_ns > ran)
		end_wait(task, account, now - ran, 0);
	account->run_last_ns = run;
	if (state & TASK_DEAD) {
		account->ended_ns = now;
		return;
	}
	account->task_state = state;
	account->woken_ns = 0;
	account->waker_tid = 0;
	account->held = 0;
	account->left_ns = now;

	struct buffer *b = bpf_task_storage_get(&off_cpu_buffers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct pt_regs user;
	if (!b)
		return;
	if (bpf_probe_read_kernel(&user, sizeof(user), (void *)bpf_task_pt_regs(task)))
		return;
	b->header.kind = KIND_OFF_CPU;
	b->header.time_ns = now;
	b->header.in_kernel = 1;
	capture(b, task, target, &user, 1);
	account->held = 1;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();
	leave(prev, now);
	arrive(next, now);
	return 0;
}

/*
 * Runs over all threads of the machine when targets join and when the recording ends. A thread of a target that has no
 * account yet gets one; if it is off its core, its stretch began before anybody looked, and counts from now.
 */
SEC("iter/task")
int read_accounts(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	if (!task)
		return 0;
	__u32 pid = process_id(task), id = task->pid;
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target || !target->recorded)
		return 0;
	struct thread_account *known = bpf_map_lookup_elem(&threads, &id);
	if (known) {
		known->run_last_ns = task->se.sum_exec_runtime;
		return 0;
	}
	__u64 now = bpf_ktime_get_ns(), run = task->se.sum_exec_runtime;
	struct thread_account fresh = {
		.pid = pid, .tid = thread_id(task), .since_ns = now, .run_first_ns = run, .run_last_ns = run,
	};
	if (!bpf_core_field_exists(task->on_cpu) || !task->on_cpu)
		fresh.left_ns = now;
	if (bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST) && !bpf_map_lookup_elem(&threads, &id))
		count(COUNTER_THREAD_TABLE_FULL, 1);
	return 0;
}

/*
 * The waker is whoever runs on the core from which the wakeup comes. A wakeup out of a hardware interrupt would be charged
 * to the thread that was interrupted, so the kernel stack is looked at, but only for waits that are going to be kept.
 */
#define WAKER_FRAMES 32
static __always_inline __u32 in_interrupt(void *context)
{
	__u64 frames[WAKER_FRAMES], start = interrupt_entry_start, size = interrupt_entry_end - start;
	long bytes = bpf_get_stack(context, frames, sizeof(frames), 0);

	for (int i = 0; i < WAKER_FRAMES; i++) {
		if (i * 8 >= bytes)
			break;
		if (frames[i] - start < size)
			return 1;
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 id = task->pid;
	struct thread_account *account = bpf_map_lookup_elem(&threads, &id);
	if (!account || !account->left_ns || account->woken_ns)
		return 0;
	struct task_struct *waker = bpf_get_current_task_btf();
	account->woken_ns = bpf_ktime_get_ns();
	account->waker_pid = process_id(waker);
	account->waker_tid = thread_id(waker);
	account->waker_interrupt = waker->pid == 0 || (account->woken_ns - account->left_ns >= settings.min_block_ns &&
						      in_interrupt(ctx));
	__builtin_memcpy(account->waker_comm, waker->comm, sizeof(account->waker_comm));
	return 0;
}

static __always_inline void report(struct task_struct *task, __u32 event, __u32 parent, __u64 cpu_ns)
{
	struct process_event e = {
		.kind = KIND_PROCESS, .event = event, .time_ns = bpf_ktime_get_ns(), .pid = process_id(task), .parent = parent,
		.cpu_ns = cpu_ns,
	};
	__builtin_memcpy(e.comm, task->comm, sizeof(e.comm));
	/* These are rare and the recorder must act on them soon. */
	if (bpf_ringbuf_output(&ring, &e, sizeof(e), BPF_RB_FORCE_WAKEUP))
		count(COUNTER_PROCESS_RING_FULL, 1);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = process_id(parent), pid = process_id(child);
	if (!settings.follow_forks || parent_pid == pid)
		return 0;
	struct target_entry *target = bpf_map_lookup_elem(&targets, &parent_pid);
	if (!target)
		return 0;
	/* A forked child has its parent's memory, so the parent's VMs are where they were. */
	if (bpf_map_update_elem(&targets, &pid, target, BPF_ANY)) {
		count(COUNTER_TARGET_TABLE_FULL, 1);
		return 0;
	}
	struct target_entry *copy = bpf_map_lookup_elem(&targets, &pid);
	if (copy)
		copy->recorded = 1;
	report(child, 1, parent_pid, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *program)
{
	__u32 pid = process_id(task);
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target)
		return 0;
	target->vms_len = 0;
	report(task, 2, 0, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 pid = process_id(task);
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target || BPF_CORE_READ(task, signal, live.counter) != 0)
		return 0;
	/* The others have ended before; only the first thread waits for the last one before its time is added to theirs. */
	__u64 cpu_ns = BPF_CORE_READ(task, signal, sum_sched_runtime) + task->se.sum_exec_runtime;
	struct task_struct *leader = task->group_leader;
	if (leader != task)
		cpu_ns += BPF_CORE_READ(leader, se.sum_exec_runtime);
	report(task, 3, 0, cpu_ns);
	return 0;
}
