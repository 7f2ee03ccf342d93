/* A C program that works through Lua's C API, with LuaJIT linked into it: from C alone, no Lua function runs.
 * Argument: SECONDS of CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct lua_State lua_State;
extern lua_State *luaL_newstate(void);
extern void lua_createtable(lua_State *, int, int);
extern void lua_pushinteger(lua_State *, long);
extern void lua_pushlstring(lua_State *, const char *, size_t);
extern void lua_setfield(lua_State *, int, const char *);
extern void lua_getfield(lua_State *, int, const char *);
extern void lua_rawseti(lua_State *, int, int);
extern void lua_settop(lua_State *, int);
extern int lua_next(lua_State *, int);
extern void lua_pushnil(lua_State *);

static void work(lua_State *L)
{
	lua_createtable(L, 0, 0);
	for (int i = 0; i < 64; i++) {
		char name[16];
		int length = snprintf(name, sizeof(name), "field%d", i);
		lua_pushlstring(L, name, length);
		lua_setfield(L, -2, name);
		lua_getfield(L, -1, name);
		lua_settop(L, -2);
		lua_pushinteger(L, i);
		lua_rawseti(L, -2, i);
	}
	lua_pushnil(L);
	while (lua_next(L, -2))
		lua_settop(L, -2);
	lua_settop(L, 0);
}

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	char line[16];
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	lua_State *L = luaL_newstate();
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (double till = cpu() + seconds; cpu() < till;)
		for (int i = 0; i < 50; i++)
			work(L);
	return 0;
}
