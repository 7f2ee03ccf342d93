-- A second VM in the same process, without any library opened, as embedding programs may have.
local ffi = require("ffi")
ffi.cdef [[
void *luaL_newstate(void);
]]
local second = ffi.C.luaL_newstate()
print("second", (string.format("%x", tonumber(ffi.cast("uintptr_t", second)))))
print("ready")
io.stdout:flush()
local limit = os.clock() + (tonumber((...)) or 20)
while os.clock() < limit do end
