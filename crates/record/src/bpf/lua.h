/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The Lua stacks of a sample. Closures and coroutines can be collected before user space could read them, so
 * they are walked here. Struct offsets are those of LuaJIT's lj_obj.h and lj_frame.h, x86-64, GC64; those that
 * differ between builds come with the VM (struct vm_entry).
 */
#pragma once

/* lua_State */
#define L_GLREF 16
#define L_BASE 32
#define L_MAXSTACK 48
#define L_STACK 56
#define L_CFRAME 80
#define L_READ 88
/* GCfunc */
#define FUNC_GCT 9
#define FUNC_FFID 10
#define FUNC_PC 32
#define FUNC_C 40
#define FUNC_READ 48
/* ~LJ_TFUNC */
#define GCT_FUNC 8
/* What ends a walk other than its depth. */
#define LUA_WALK_FAULTS (FAULT_LUA_SLOT | FAULT_LUA_FUNCTION | FAULT_LUA_NOT_FUNCTION | FAULT_LUA_INSTRUCTION)
#define ADDRESS_47 ((1ULL << 47) - 1)
/* The VM's frame on the C stack: a return address into the interpreter lies 8 below the frame, L 16 above its start. */
#define WORD_TO_CFRAME 8
#define WORD_TO_L 24

struct lua_search {
	struct buffer *buffer;
	struct walk *walk;
	struct target_entry *target;
	struct vm_entry vm; /* the VM that runs on this thread, global_state 0 when none was found yet */
	__u64 rdx;
	__u64 current; /* cur_L of that VM */
	__u64 cframe;  /* the innermost of those seen so far */
	__u64 lua_offset;
};

struct lua_walk {
	struct buffer *buffer;
	__u64 base, bottom, l;
	__u64 pc;     /* the interpreter's PC register, 0 when it is not known */
	__u64 offset; /* where the next frame goes in the data */
	__u64 frames; /* of this state */
	__u32 state;
};

/* One frame per call, innermost first; 1 ends the walk. */
static long walk_frame(__u32 index, void *context)
{
	struct lua_walk *w = context;
	struct buffer *b = w->buffer;
	__u64 slots[2], offset = w->offset;
	__u8 function[FUNC_READ];
	struct lua_frame frame = {};

	if (w->base <= w->bottom)
		return 1;
	if (b->header.lua_len >= LUA_FRAMES_MAX) {
		b->header.faults |= FAULT_LUA_DEPTH;
		return 1;
	}
	if (bpf_probe_read_user(slots, sizeof(slots), (void *)(w->base - 16))) {
		b->header.faults |= FAULT_LUA_SLOT;
		return 1;
	}
	__u64 object = slots[0] & ADDRESS_47, link = slots[1];
	frame.link = link;
	frame.state = w->state;
	int unreadable = bpf_probe_read_user(function, sizeof(function), (void *)object) != 0;
	if (object == w->l) {
		frame.ffid = FFID_DUMMY;
	} else if ((unreadable || function[FUNC_GCT] != GCT_FUNC) && w->frames == 0 && w->pc) {
		/*
		 * A function that returns writes its results over its own frame, and has taken the link into the PC
		 * register before. It is nameless now; its callers are all there.
		 */
		frame.ffid = FFID_DUMMY;
		frame.link = link = w->pc;
	} else {
		if (unreadable) {
			b->header.faults |= FAULT_LUA_FUNCTION;
			return 1;
		}
		if (function[FUNC_GCT] != GCT_FUNC) {
			b->header.faults |= FAULT_LUA_NOT_FUNCTION;
			return 1;
		}
		frame.ffid = function[FUNC_FFID];
		frame.code = frame.ffid ? *(__u64 *)(function + FUNC_C) : *(__u64 *)(function + FUNC_PC);
	}
	if ((link & 7) == 2) /* FRAME_CONT */
		bpf_probe_read_user(&frame.continuation_pc, 8, (void *)(w->base - 24));

	if (offset > DATA_MAX - KERNEL_FRAMES_MAX * 8 - sizeof(frame))
		return 1;
	__builtin_memcpy(b->data + offset, &frame, sizeof(frame));
	w->offset = offset + sizeof(frame);
	b->header.lua_len++;
	w->frames++;

	if ((link & 3) == 0) { /* FRAME_LUA: the link is the caller's PC, after the call instruction */
		__u32 instruction;
		if (bpf_probe_read_user(&instruction, 4, (void *)(link - 4))) {
			b->header.faults |= FAULT_LUA_INSTRUCTION;
			return 1;
		}
		w->base -= (2 + ((instruction >> 8) & 0xff)) * 8;
	} else {
		w->base -= link & ~7ULL;
	}
	return 0;
}

/* Appends a state unless it is known; the order is innermost first. */
static __always_inline void add_state(struct sample_header *h, __u64 l)
{
	__u32 n = h->states_len;
	if (n >= LUA_STATES_MAX)
		return;
	if ((n > 0 && h->states[0].address == l) || (n > 1 && h->states[1].address == l) ||
	    (n > 2 && h->states[2].address == l))
		return;
	asm volatile("%0 &= 3" : "+r"(n));
	h->states[n].address = l;
	h->states_len = n + 1;
}

/* Is cur_L of this VM running on this thread? Its cframe then lies in the thread's copied stack. */
static long find_running_vm(__u32 index, void *context)
{
	struct lua_search *s = context;
	struct sample_header *h = &s->buffer->header;
	__u64 pair[2], l[L_READ / 8];

	if (index >= VMS_MAX)
		return 1;
	struct vm_entry *vm = &s->target->vms[index];
	if (bpf_probe_read_user(pair, sizeof(pair), (void *)(vm->global_state + vm->cur_l)))
		return 0;
	if (!pair[0] || bpf_probe_read_user(l, sizeof(l), (void *)pair[0]))
		return 0;
	if (l[L_GLREF / 8] != vm->global_state)
		return 0;
	__u64 cframe = l[L_CFRAME / 8] & ~3ULL;
	if (cframe < h->sp || cframe - h->sp >= h->stack_len || cframe >= s->cframe)
		return 0;
	s->cframe = cframe;
	s->vm = *vm;
	s->current = pair[0];
	h->jit_base = pair[1];
	return 0;
}

/* So many words of the copied stack per call: unrolled, which is fast and costs the verifier. */
#define WORDS_PER_CALL 32
static long scan_words(__u32 index, void *context)
{
	struct lua_search *s = context;
	__u64 low = s->target->interpreter_start, range = s->target->interpreter_end - low;
	__u64 offset = (__u64)index * WORDS_PER_CALL * 8;

	if (offset >= s->buffer->header.stack_len || offset > STACK_BYTES_MAX - WORDS_PER_CALL * 8)
		return 1;
	__u64 *words = (__u64 *)(s->buffer->data + offset);
#pragma clang loop unroll(full)
	for (int i = 0; i < WORDS_PER_CALL; i++) {
		if (words[i] - low < range) {
			__u64 n = s->walk->hits_len;
			if (n >= HITS_MAX)
				return 1;
			asm volatile("%0 &= 15" : "+r"(n));
			s->walk->hits[n] = offset + i * 8;
			s->walk->hits_len = n + 1;
		}
	}
	return 0;
}

/* A word that points into the interpreter is the return address of a call out of the VM when L lies behind it. */
static long check_hit(__u32 index, void *context)
{
	struct lua_search *s = context;
	struct sample_header *h = &s->buffer->header;
	__u64 global_state = 0, n = index;

	if (index >= s->walk->hits_len)
		return 1;
	asm volatile("%0 &= 15" : "+r"(n));
	__u64 offset = s->walk->hits[n] + WORD_TO_L;
	if (offset + 8 > h->stack_len || offset > STACK_BYTES_MAX - 8)
		return 0;
	__u64 l = *(__u64 *)(s->buffer->data + offset);
	if (l < 4096 || bpf_probe_read_user(&global_state, 8, (void *)(l + L_GLREF)))
		return 0;
	if (!s->vm.global_state) {
#pragma clang loop unroll(full)
		for (int i = 0; i < VMS_MAX; i++)
			if (i < s->target->vms_len && s->target->vms[i].global_state == global_state)
				s->vm = s->target->vms[i];
	}
	if (global_state && global_state == s->vm.global_state)
		add_state(h, l);
	return 0;
}

static long walk_state(__u32 index, void *context)
{
	struct lua_search *s = context;
	struct buffer *b = s->buffer;
	__u64 l[L_READ / 8], i = index;

	if (index >= b->header.states_len)
		return 1;
	asm volatile("%0 &= 3" : "+r"(i));
	struct lua_state_record *state = &b->header.states[i];
	__u64 address = state->address;
	state->frames = 0;
	state->base = 0;
	state->cframe = 0;
	if (bpf_probe_read_user(l, sizeof(l), (void *)address) || l[L_GLREF / 8] != s->vm.global_state)
		return 0;
	state->cframe = l[L_CFRAME / 8] & ~3ULL;
	__u64 base = l[L_BASE / 8], bottom = l[L_STACK / 8] + 16, pc = 0;
	if (index == 0) {
		__u64 ip = b->header.ip;
		b->header.base_source = 3; /* StateBase */
		if (b->header.jit_base && address == s->current) {
			base = b->header.jit_base;
			b->header.base_source = 2; /* JitBase */
		} else if (ip - s->vm.interpreter_start < s->vm.interpreter_end - s->vm.interpreter_start) {
			if (s->rdx >= bottom && s->rdx < l[L_MAXSTACK / 8] && !(s->rdx & 7)) {
				base = s->rdx;
				pc = b->header.bx;
				b->header.base_source = 1; /* Register */
			} else {
				b->header.base_source = 4; /* StateBaseInInterpreter */
			}
		}
	}
	state->base = base;
	struct lua_walk w = {
		.buffer = b, .base = base, .bottom = bottom, .l = address, .pc = pc, .state = index,
		.offset = s->lua_offset,
	};
	__u32 faults = b->header.faults, lua_len = b->header.lua_len;
	bpf_loop(LUA_FRAMES_MAX, walk_frame, &w, 0);
	if (b->header.base_source == 1 && index == 0 && (b->header.faults & ~faults & LUA_WALK_FAULTS)) {
		/* The BASE register already carries an argument of a C function; the VM has stored BASE before. */
		b->header.faults = faults;
		b->header.lua_len = lua_len;
		b->header.base_source = 4; /* StateBaseInInterpreter */
		state->base = w.base = l[L_BASE / 8];
		w.pc = 0;
		w.frames = 0;
		w.offset = s->lua_offset;
		bpf_loop(LUA_FRAMES_MAX, walk_frame, &w, 0);
	}
	state->frames = w.frames;
	s->lua_offset = w.offset;
	return 0;
}

/* Finds the VM that runs on this thread and walks its Lua stacks into the data after the copied stack. */
static __always_inline void walk_lua(struct buffer *b, struct target_entry *target, __u64 rdx, __u32 scratch)
{
	struct walk *walk = bpf_map_lookup_elem(&walks, &scratch);
	if (!walk || target->vms_len == 0)
		return;
	walk->hits_len = 0;
	struct lua_search s = {
		.buffer = b, .walk = walk, .target = target, .rdx = rdx, .cframe = ~0ULL,
		.lua_offset = b->header.stack_len,
	};
	bpf_loop(target->vms_len, find_running_vm, &s, 0);
	if (s.vm.global_state)
		add_state(&b->header, s.current);
	bpf_loop(STACK_BYTES_MAX / (WORDS_PER_CALL * 8), scan_words, &s, 0);
	bpf_loop(HITS_MAX, check_hit, &s, 0);
	if (!s.vm.global_state)
		return;
	b->header.vm = s.vm.global_state;
	bpf_probe_read_user(&b->header.vm_state, 4, (void *)(s.vm.global_state + s.vm.vmstate));
	bpf_loop(LUA_STATES_MAX, walk_state, &s, 0);
}
