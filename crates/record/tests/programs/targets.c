/*
 * A program that is hard to record, in several ways; the first argument says which. It prints "ready", waits for a line
 * where the work begins, and prints at its end what it did, so that a test can tell whether recording changed it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static double seconds_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void ready(void)
{
	char line[16];
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(3);
}

/* Known work: the result does not depend on how long it takes. */
NOINLINE unsigned long leaf_work(unsigned long n)
{
	unsigned long x = 1;
	for (unsigned long i = 0; i < n; i++)
		x = (x * 31 + i) % 1000003;
	return x;
}

NOINLINE unsigned long outer_work(unsigned long n)
{
	return leaf_work(n) + 1;
}

NOINLINE static unsigned long burn(double cpu_seconds)
{
	double until = seconds_of(CLOCK_THREAD_CPUTIME_ID) + cpu_seconds;
	unsigned long x = 0;
	while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < until)
		x = outer_work(20000);
	return x;
}

/* So many rounds of the known work; the checksum is printed. */
static void checksum(int rounds)
{
	unsigned long sum = 0;
	ready();
	for (int i = 0; i < rounds; i++)
		sum = sum * 33 + outer_work(100000 + i % 7);
	printf("checksum %lu\n", sum);
}

NOINLINE unsigned long deep_work(int depth, double cpu_seconds)
{
	volatile char frame[160];
	memset((char *)frame, depth, sizeof(frame));
	if (depth == 0)
		return burn(cpu_seconds);
	return deep_work(depth - 1, cpu_seconds) + frame[depth % sizeof(frame)];
}

static void *sleeper(void *arg)
{
	unsigned long *woken = arg;
	for (;;) {
		usleep(500000);
		__atomic_fetch_add(woken, 1, __ATOMIC_RELAXED);
		if (*woken % 8 == 0)
			leaf_work(20000);
	}
	return NULL;
}

static void many_threads(int n)
{
	static unsigned long woken;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < n; i++) {
		pthread_t thread;
		if (pthread_create(&thread, &small, sleeper, &woken)) {
			printf("threads %d\n", i);
			fflush(stdout);
			exit(4);
		}
	}
	ready();
	burn(1e9);
}

static void *blocker(void *arg)
{
	for (;;) {
		usleep(100);
		leaf_work(100);
	}
	return arg;
}

/* Deep stacks on the CPU and many short waits: as many and as large records as a program can cause. */
static void storm(int threads, double cpu_seconds)
{
	ready();
	for (int i = 0; i < threads; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, blocker, NULL);
	}
	deep_work(140, cpu_seconds);
}

NOINLINE void child_work(double cpu_seconds)
{
	burn(cpu_seconds);
	_exit(0);
}

static void forks(int children, double cpu_seconds)
{
	ready();
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();
		if (pid == 0)
			child_work(cpu_seconds);
		waitpid(pid, NULL, 0);
		printf("child %d\n", pid);
	}
	struct rusage used;
	getrusage(RUSAGE_CHILDREN, &used);
	printf("cpu %.6f\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec +
				     (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
}

static double late_seconds;
static void *late_work(void *arg)
{
	printf("thread %d\n", gettid());
	fflush(stdout);
	burn(late_seconds);
	return arg;
}

static void late_threads(int n, double cpu_seconds)
{
	late_seconds = cpu_seconds;
	ready();
	for (int i = 0; i < n; i++) {
		pthread_t thread;
		usleep(100000);
		pthread_create(&thread, NULL, late_work, NULL);
		pthread_join(thread, NULL);
	}
}

NOINLINE unsigned long before_exec(double cpu_seconds)
{
	return burn(cpu_seconds) + 1;
}

NOINLINE unsigned long after_exec(double cpu_seconds)
{
	return burn(cpu_seconds) + 2;
}

static void change_program(const char *program)
{
	ready();
	before_exec(0.7);
	execl(program, program, "executed", NULL);
	exit(5);
}

/* Machine code without a file: counts down rdi (mov rax, rdi; dec rax; jnz -5; ret). */
NOINLINE void machine_code(double cpu_seconds)
{
	static const unsigned char code[] = { 0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3 };
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		exit(6);
	memcpy(page, code, sizeof(code));
	printf("code %lx %zx\n", (unsigned long)page, sizeof(code));
	ready();
	double until = seconds_of(CLOCK_PROCESS_CPUTIME_ID) + cpu_seconds;
	while (seconds_of(CLOCK_PROCESS_CPUTIME_ID) < until)
		((void (*)(unsigned long))page)(1000000);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;
	double s = argc > 3 ? atof(argv[3]) : 0;

	if (!strcmp(mode, "checksum"))
		checksum(n);
	else if (!strcmp(mode, "threads"))
		many_threads(n);
	else if (!strcmp(mode, "storm"))
		storm(n, s);
	else if (!strcmp(mode, "forks"))
		forks(n, s);
	else if (!strcmp(mode, "late"))
		late_threads(n, s);
	else if (!strcmp(mode, "exec"))
		change_program(argv[2]);
	else if (!strcmp(mode, "executed"))
		after_exec(0.7);
	else if (!strcmp(mode, "code"))
		machine_code(n);
	else
		return 2;
	return 0;
}
