/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Everything that outlives one run of a program: settings, targets, threads, buffers, the ring, counters. */
#pragma once

#define DATA_MAX (STACK_BYTES_MAX + LUA_FRAMES_MAX * 32 + KERNEL_FRAMES_MAX * 8)

/* Fixed before loading: the verifier knows the values and drops what is switched off. */
const volatile struct settings settings = {};

/* The recorder's pid namespace, learnt by a program that runs in the recorder itself. */
__u32 namespace_level = 0;
__u32 namespace_inum = 0;

/* The code through which hardware interrupts enter the kernel; empty when the kernel hides it. */
__u64 interrupt_entry_start = 0;
__u64 interrupt_entry_end = 0;

/* A record under construction; the ring gets the header and as much of the data as is used. */
struct buffer {
	struct sample_header header;
	__u8 data[DATA_MAX];
};

/* By process id as the recorder sees it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct target_entry);
} targets SEC(".maps");

/* By the kernel's own thread id, which is unique on the machine. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct thread_account);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct buffer);
} on_cpu_buffers SEC(".maps");

/* The record of a thread that is off its core; it goes away with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct buffer);
} off_cpu_buffers SEC(".maps");

/*
 * Scratch memory of the Lua walk. Two per CPU: the sampling clock may interrupt the scheduler's program.
 */
#define HITS_MAX 16
struct walk {
	__u64 hits[HITS_MAX]; /* offsets of stack words that point into an interpreter */
	__u64 hits_len;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS_LEN);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 counter, __u64 amount)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		*value += amount;
}

/* Wakes the recorder only when the ring fills up: a wakeup costs more than a record. */
static __always_inline long send(void *record, __u64 size)
{
	__u64 flags = BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > settings.wakeup_bytes)
		flags = 0;
	return bpf_ringbuf_output(&ring, record, size, flags);
}
