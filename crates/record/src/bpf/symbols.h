/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel calls its own code. It names an address far faster than a reader of /proc/kallsyms could, which prints
 * all 200,000 symbols to find one.
 */
#pragma once

/* Runs in the recorder's own context, once for each new address: in goes the address, out comes "name+0x1/0x2 [module]". */
SEC("syscall")
int name_address(struct kernel_symbol *symbol)
{
	static const char format[] = "%pS";
	char text[sizeof(symbol->text)] = {};
	__u64 address = symbol->address;

	bpf_snprintf(text, sizeof(text), format, &address, sizeof(address));
#pragma clang loop unroll(full)
	for (int i = 0; i < sizeof(text) / sizeof(__u64); i++)
		((__u64 *)symbol->text)[i] = ((__u64 *)text)[i];
	return 0;
}

/*
 * The code through which hardware interrupts enter: the stubs of device and timer interrupts lie side by side up to the
 * end of the section (arch/x86/entry/entry_64.S, asm/idtentry.h); those of exceptions, which are the running thread's own
 * doing, come before them. Both stay 0 when the kernel hides its addresses.
 */
static __always_inline void learn_interrupt_entry(void)
{
	static const char first[] = "asm_common_interrupt", end[] = "__irqentry_text_end";
	__u64 from = 0, to = 0;

	if (bpf_kallsyms_lookup_name(first, sizeof(first), 0, &from) || bpf_kallsyms_lookup_name(end, sizeof(end), 0, &to))
		return;
	interrupt_entry_start = from;
	interrupt_entry_end = to;
}
