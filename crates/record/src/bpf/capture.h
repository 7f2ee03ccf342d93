/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One stack: user registers, the user stack's bytes, the Lua frames; the same for running and leaving threads. */
#pragma once

#define PAGE 4096
/* Beyond this distance the stack pointer is on another stack than the one whose top is known. */
#define STACK_SPAN_MAX (64ULL << 20)
/* Copied when the top of the stack is not known (goroutines, signal stacks). */
#define STACK_UNKNOWN_BYTES (16 * 1024)

/* Bytes from the stack pointer to the top of the stack, at most the limit. */
static __always_inline __u64 stack_size(struct task_struct *task, __u64 sp, __u32 *faults)
{
	__u64 limit = settings.stack_bytes, size = STACK_UNKNOWN_BYTES;
	struct mm_struct *mm = task->mm;
	/* The kernel puts the main thread's entry at start_stack; the C library puts a thread's control block, to which
	 * the FS base points, at the top of its stack. */
	__u64 main_top = mm ? mm->start_stack + 16 : 0;
	__u64 thread_top = task->thread.fsbase;

	if (main_top - sp < STACK_SPAN_MAX)
		size = main_top - sp;
	else if (thread_top - sp < STACK_SPAN_MAX)
		size = thread_top - sp;
	if (size > limit) {
		size = limit;
		*faults |= FAULT_STACK_LIMIT;
	}
	return size & ~7ULL;
}

struct page_copy {
	struct buffer *buffer;
	__u64 size;
};

/* Copies up to the next page boundary: what can be had of a stack of which a page is missing. */
static long copy_page(__u32 index, void *context)
{
	struct page_copy *c = context;
	struct buffer *b = c->buffer;
	__u64 offset = b->header.stack_len, address = b->header.sp + offset;
	__u64 size = PAGE - (address & (PAGE - 1));

	if (offset >= c->size)
		return 1;
	if (size > c->size - offset)
		size = c->size - offset;
	if (offset > STACK_BYTES_MAX - PAGE)
		return 1;
	if (size == 0 || size > PAGE)
		return 1;
	if (bpf_probe_read_user(b->data + offset, size, (void *)address)) {
		b->header.faults |= FAULT_STACK_UNREADABLE;
		return 1;
	}
	b->header.stack_len = offset + size;
	return 0;
}

static __always_inline void copy_stack(struct buffer *b, struct task_struct *task)
{
	__u64 size = stack_size(task, b->header.sp, &b->header.faults);
	asm volatile("" : "+r"(size));
	if (size > STACK_BYTES_MAX)
		size = STACK_BYTES_MAX;
	b->header.stack_len = 0;
	if (size == 0)
		return;
	if (bpf_probe_read_user(b->data, size, (void *)b->header.sp) == 0) {
		b->header.stack_len = size;
		return;
	}
	struct page_copy copy = { .buffer = b, .size = size };
	bpf_loop(STACK_BYTES_MAX / PAGE + 1, copy_page, &copy, 0);
	b->header.stack_len &= ~7U;
}

/* Fills a record for the current task except its kernel stack. */
static __always_inline void capture(struct buffer *b, struct task_struct *task, struct target_entry *target,
				    struct pt_regs *user, __u32 scratch)
{
	struct sample_header *h = &b->header;

	h->faults = 0;
	h->pid = process_id(task);
	h->tid = thread_id(task);
	__builtin_memcpy(h->comm, task->comm, sizeof(h->comm));
	h->ip = user->ip;
	h->sp = user->sp;
	h->bp = user->bp;
	h->bx = user->bx;
	h->r14 = user->r14;
	h->vm = 0;
	h->jit_base = 0;
	h->vm_state = 0;
	h->base_source = 0;
	h->lua_len = 0;
	h->kernel_len = 0;
	h->states_len = 0;
	copy_stack(b, task);
	walk_lua(b, target, user->dx, scratch);
}

/* Where the kernel frames go: behind the stack and the Lua frames. */
static __always_inline __u64 kernel_offset(struct sample_header *h)
{
	__u64 offset = (__u64)h->stack_len + (__u64)h->lua_len * sizeof(struct lua_frame);
	asm volatile("" : "+r"(offset));
	return offset;
}

static __always_inline __u64 record_size(struct sample_header *h)
{
	__u64 size = sizeof(*h) + kernel_offset(h) + (__u64)h->kernel_len * 8;
	asm volatile("" : "+r"(size));
	if (size > sizeof(struct buffer))
		size = sizeof(struct buffer);
	return size;
}
