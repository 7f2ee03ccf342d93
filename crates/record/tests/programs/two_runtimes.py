"""Two LuaJIT runtimes of lupa in two threads. Argument: the Lua script that each of them runs."""
import sys
import threading

from lupa.luajit21 import LuaRuntime

runtimes = [LuaRuntime(), LuaRuntime()]
runs = [
    runtime.eval("function(path, ...) assert(loadfile(path))(...) end")
    for runtime in runtimes
]
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=run, args=(sys.argv[1], "off", "0.5")) for run in runs]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", flush=True)
# Lua functions have names for as long as the process lives.
sys.stdin.readline()
