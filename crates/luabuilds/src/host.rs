//! A program that runs a script in a Lua shared library, as embedding programs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Unavailable;
use crate::cache;

/// Only the functions that every LuaJIT and PUC Lua 5.1 exports, so no header is needed.
const SOURCE: &str = r#"
#include <dlfcn.h>
#include <stdio.h>

static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "%s\n", dlerror());
    return found;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !(library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))) {
        fprintf(stderr, "usage: host LIBRARY SCRIPT [ARGUMENT...]: %s\n", dlerror());
        return 2;
    }
    void *(*new_state)(void) = function("luaL_newstate");
    void (*open_libraries)(void *) = function("luaL_openlibs");
    int (*load_file)(void *, const char *) = function("luaL_loadfile");
    void (*push_string)(void *, const char *) = function("lua_pushstring");
    int (*call)(void *, int, int, int) = function("lua_pcall");
    const char *(*to_string)(void *, int, size_t *) = function("lua_tolstring");
    if (!new_state || !open_libraries || !load_file || !push_string || !call || !to_string) return 2;
    void *state = new_state();
    open_libraries(state);
    int failed = load_file(state, argv[2]);
    if (!failed) {
        for (int i = 3; i < argc; i++) push_string(state, argv[i]);
        failed = call(state, argc - 3, 0, 0);
    }
    if (failed) fprintf(stderr, "%s\n", to_string(state, -1, NULL));
    return failed;
}
"#;

/// The compiled program.
pub(crate) fn host() -> Result<PathBuf, Unavailable> {
    let directory = cache::directory("host", compile)?;
    Ok(directory.join("host"))
}

fn compile(directory: &Path) -> Result<(), String> {
    let source = directory.join("host.c");
    fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
    let mut compiler = Command::new("cc");
    compiler
        .arg("-O1")
        .arg("-o")
        .arg(directory.join("host"))
        .arg(&source)
        .arg("-ldl");
    cache::run(&mut compiler)
}
