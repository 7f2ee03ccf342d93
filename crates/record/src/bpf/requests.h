/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Requests that targets finish: a probe on a function that nginx calls once for each, where it gives the request back. */
#pragma once

SEC("uprobe")
int on_request_freed(void *registers)
{
	__u32 pid = process_id(bpf_get_current_task_btf());
	struct target_entry *target = bpf_map_lookup_elem(&targets, &pid);
	if (target && target->recorded)
		count(COUNTER_REQUESTS_FINISHED, 1);
	return 0;
}
