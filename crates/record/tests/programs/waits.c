/* Waits of known length. Each function says how long it waited by the wall clock.
 * Arguments: sleep | mutex | pipe | busy SECONDS | mixed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static double clock_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void sleep_ms(double ms)
{
	struct timespec t = {0, ms * 1e6};
	nanosleep(&t, NULL);
	sink++;
}

static __attribute__((noinline)) void spin_ms(double ms)
{
	double till = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1e6;
	do
		for (int i = 0; i < 2000; i++)
			sink = sink * 31 + i;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < till);
}

#define TIMED(total, statement) \
	do { \
		double before = clock_ns(CLOCK_MONOTONIC); \
		statement; \
		total += clock_ns(CLOCK_MONOTONIC) - before; \
	} while (0)

static __attribute__((noinline)) double naps(void)
{
	double waited = 0;
	for (int i = 0; i < 30; i++)
		TIMED(waited, sleep_ms(20));
	return waited;
}

static __attribute__((noinline)) double dozes(void)
{
	double waited = 0;
	for (int i = 0; i < 60; i++)
		TIMED(waited, sleep_ms(5));
	return waited;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t held, released;
static int ends[2];

#define ROUNDS 40

static void *hold(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		sem_post(&held);
		sleep_ms(15);
		pthread_mutex_unlock(&lock);
		while (sem_wait(&released))
			;
	}
	return unused;
}

static __attribute__((noinline)) void wait_for_turn(void)
{
	while (sem_wait(&held))
		;
	sink++;
}

static __attribute__((noinline)) double wait_for_lock(void)
{
	double waited = 0;
	TIMED(waited, pthread_mutex_lock(&lock));
	pthread_mutex_unlock(&lock);
	return waited;
}

static void *write_slowly(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		sleep_ms(15);
		if (write(ends[1], "x", 1) != 1)
			break;
	}
	close(ends[1]);
	return unused;
}

static __attribute__((noinline)) double read_pipe(void)
{
	double waited = 0;
	char byte;
	long got;
	do
		TIMED(waited, got = read(ends[0], &byte, 1));
	while (got == 1);
	return waited;
}

static void *mix(void *unused)
{
	for (int i = 0; i < 100; i++) {
		sleep_ms(i % 3 ? 0.3 : 8);
		spin_ms(5);
	}
	return unused;
}

static pthread_t start(void *(*work)(void *), const char *name)
{
	pthread_t thread;
	pthread_create(&thread, NULL, work, NULL);
	pthread_setname_np(thread, name);
	return thread;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "sleep";
	char line[16];
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(mode, "sleep")) {
		double nap = naps(), doze = dozes();
		printf("naps %.0f\ndozes %.0f\n", nap, doze);
	} else if (!strcmp(mode, "mutex")) {
		double waited = 0;
		sem_init(&held, 0, 0);
		sem_init(&released, 0, 0);
		pthread_t holder = start(hold, "holder");
		for (int i = 0; i < ROUNDS; i++) {
			wait_for_turn();
			waited += wait_for_lock();
			sem_post(&released);
		}
		pthread_join(holder, NULL);
		printf("wait_for_lock %.0f\n", waited);
	} else if (!strcmp(mode, "pipe")) {
		if (pipe(ends))
			return 1;
		pthread_t writer = start(write_slowly, "writer");
		double waited = read_pipe();
		pthread_join(writer, NULL);
		printf("read_pipe %.0f\n", waited);
	} else if (!strcmp(mode, "busy")) {
		double before = clock_ns(CLOCK_MONOTONIC);
		spin_ms(1e3 * (argc > 2 ? atof(argv[2]) : 1));
		printf("wall %.0f\n", clock_ns(CLOCK_MONOTONIC) - before);
	} else if (!strcmp(mode, "mixed")) {
		pthread_t one = start(mix, "one"), two = start(mix, "two");
		pthread_join(one, NULL);
		pthread_join(two, NULL);
	}
	return 0;
}
