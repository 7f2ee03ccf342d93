/* Three functions that share the CPU 60 : 30 : 10, and say how much each took by the process's own CPU clock.
 * Arguments: CPU seconds to use. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

#define WORK(name, factor) \
	static __attribute__((noinline)) void name(long n) \
	{ \
		uint64_t x = factor; \
		for (long i = 0; i < n; i++) \
			x = (x * factor + i) % 1000003; \
		sink = x; \
	}
WORK(sixty, 31)
WORK(thirty, 37)
WORK(ten, 41)

/* A caller with a frame of its own, so that unwinding has something to get wrong. */
static __attribute__((noinline)) double timed(void (*work)(long), long n)
{
	volatile char frame[200];
	frame[0] = 0;
	double before = cpu();
	work(n);
	return cpu() - before + frame[0];
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1, used[3] = {0};
	long n = 1000;
	char line[16];
	do
		n *= 2;
	while (timed(sixty, n) < 1e7);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	while (used[0] + used[1] + used[2] < seconds * 1e9) {
		used[0] += timed(sixty, 6 * n);
		used[1] += timed(thirty, 3 * n);
		used[2] += timed(ten, n);
	}
	printf("sixty %.0f\nthirty %.0f\nten %.0f\n", used[0], used[1], used[2]);
	return 0;
}
