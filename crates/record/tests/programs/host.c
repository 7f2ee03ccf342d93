/* A C program that runs Lua, calls C from it, and Lua again from there. It loads the Lua library whose path it is given,
 * so no header is needed; compiled with -DLINKED it has the library linked in.
 * Arguments: LIBRARY SCRIPT [ARGUMENT]. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *);
#define LUA_GLOBALSINDEX (-10002)

#define FUNCTIONS(each) \
	each(luaL_newstate, lua_State *, (void)) \
	each(luaL_openlibs, void, (lua_State *)) \
	each(luaL_loadfile, int, (lua_State *, const char *)) \
	each(lua_pcall, int, (lua_State *, int, int, int)) \
	each(lua_pushcclosure, void, (lua_State *, lua_CFunction, int)) \
	each(lua_pushstring, void, (lua_State *, const char *)) \
	each(lua_pushvalue, void, (lua_State *, int)) \
	each(lua_setfield, void, (lua_State *, int, const char *)) \
	each(lua_tolstring, const char *, (lua_State *, int, size_t *)) \
	each(lua_settop, void, (lua_State *, int))

#ifdef LINKED
#define DECLARE(name, result, parameters) extern result name parameters;
#else
#define DECLARE(name, result, parameters) static result (*name) parameters;
#endif
FUNCTIONS(DECLARE)

static void load(const char *path)
{
#ifndef LINKED
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
#define FIND(name, result, parameters) *(void **)&name = dlsym(library, #name);
	FUNCTIONS(FIND)
#endif
}

static volatile unsigned long sink;

/* 5 ms of CPU. */
static __attribute__((noinline)) int c_spin(lua_State *L)
{
	struct timespec t;
	double till = 0, now;
	do {
		for (unsigned long i = 0; i < 20000; i++)
			sink = sink * 31 + i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		now = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
		if (till == 0)
			till = now + 5;
	} while (now < till);
	return 0;
}

/* Calls its argument. */
static __attribute__((noinline)) int c_middle(lua_State *L)
{
	lua_pushvalue(L, 1);
	int failed = lua_pcall(L, 0, 0, 0);
	if (failed)
		fprintf(stderr, "%s\n", lua_tolstring(L, -1, NULL));
	sink += failed;
	return 0;
}

/* Calls its argument with as much on the C stack as a luaL_Buffer has. */
static __attribute__((noinline)) int c_buffer(lua_State *L)
{
	volatile char buffer[8192 + 24];
	memset((char *)buffer, 0x55, sizeof(buffer));
	lua_pushvalue(L, 1);
	int failed = lua_pcall(L, 0, 0, 0);
	sink += failed + buffer[7];
	return 0;
}

static void sleep_ms(double ms)
{
	struct timespec t = {0, ms * 1e6};
	nanosleep(&t, NULL);
}

/* 10 ms asleep. */
static __attribute__((noinline)) int c_sleep(lua_State *L)
{
	sleep_ms(10);
	sink++;
	return 0;
}

static void set_function(lua_State *L, const char *name, lua_CFunction function)
{
	lua_pushcclosure(L, function, 0);
	lua_setfield(L, LUA_GLOBALSINDEX, name);
}

struct run {
	lua_State *L;
	const char *argument;
};

static void *run(void *context)
{
	struct run *r = context;
	lua_pushvalue(r->L, 1);
	lua_pushstring(r->L, r->argument);
	if (lua_pcall(r->L, 1, 0, 0))
		fprintf(stderr, "%s\n", lua_tolstring(r->L, -1, NULL));
	return NULL;
}

static lua_State *make(const char *script)
{
	lua_State *L = luaL_newstate();
	luaL_openlibs(L);
	set_function(L, "c_spin", c_spin);
	set_function(L, "c_middle", c_middle);
	set_function(L, "c_buffer", c_buffer);
	set_function(L, "c_sleep", c_sleep);
	if (luaL_loadfile(L, script)) {
		fprintf(stderr, "%s\n", lua_tolstring(L, -1, NULL));
		exit(2);
	}
	return L;
}

int main(int argc, char **argv)
{
	char line[16];
	if (argc < 3)
		return 2;
	load(argv[1]);
	struct run first = { make(argv[2]), "first" }, second = { NULL, "second" };
	int threads = argc > 3 && !strcmp(argv[3], "threads");
	if (threads || (argc > 3 && !strcmp(argv[3], "two")))
		second.L = make(argv[2]);
	else if (argc > 3)
		first.argument = argv[3];
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (threads) {
		pthread_t other;
		pthread_create(&other, NULL, run, &second);
		run(&first);
		pthread_join(other, NULL);
	} else if (second.L) {
		for (int i = 0; i < 2; i++) {
			run(&first);
			run(&second);
		}
	} else {
		run(&first);
	}
	return 0;
}
