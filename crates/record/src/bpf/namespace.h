/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Process and thread ids as the recorder's /proc shows them, whatever namespace the recorder is in. */
#pragma once

/* The id in the recorder's namespace; 0 when the process is not visible there. */
static __always_inline __u32 id_in_namespace(struct pid *pid)
{
	__u32 level = namespace_level;
	if (BPF_CORE_READ(pid, level) < level)
		return 0;
	void *number = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
		       (__u64)level * bpf_core_type_size(struct upid);
	struct upid *upid = number;
	if (BPF_CORE_READ(upid, ns, ns.inum) != namespace_inum)
		return 0;
	return BPF_CORE_READ(upid, nr);
}

static __always_inline __u32 process_id(struct task_struct *task)
{
	if (namespace_level == 0)
		return task->tgid;
	return id_in_namespace(BPF_CORE_READ(task, group_leader, thread_pid));
}

static __always_inline __u32 thread_id(struct task_struct *task)
{
	if (namespace_level == 0)
		return task->pid;
	return id_in_namespace(BPF_CORE_READ(task, thread_pid));
}

/* Runs once in the recorder's own context. */
SEC("syscall")
int learn_surroundings(void *unused)
{
	learn_interrupt_entry();
	struct task_struct *task = bpf_get_current_task_btf();
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid *upid = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			    (__u64)level * bpf_core_type_size(struct upid);
	namespace_inum = BPF_CORE_READ(upid, ns, ns.inum);
	namespace_level = level;
	return 0;
}
