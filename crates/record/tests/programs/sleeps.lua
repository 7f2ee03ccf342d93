-- Two functions that sleep for known times, and say for how long they slept by the wall clock.
-- Arguments: "off" to switch the JIT off.
local mode = ...
if mode == "off" then jit.off() end
local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds, nanoseconds; } time_spec;
  int nanosleep(const time_spec *length, time_spec *rest);
  int clock_gettime(int id, time_spec *now);
]]
local C = ffi.C
local CLOCK_MONOTONIC = 1
local length, now_spec = ffi.new("time_spec"), ffi.new("time_spec")

local function now()
  C.clock_gettime(CLOCK_MONOTONIC, now_spec)
  return tonumber(now_spec.seconds) * 1e9 + tonumber(now_spec.nanoseconds)
end

local function naps(rounds)
  length.nanoseconds = 20e6
  local before = now()
  for _ = 1, rounds do
    C.nanosleep(length, nil) -- HERE: naps
  end
  return now() - before
end

local function dozes(rounds)
  length.nanoseconds = 5e6
  local before = now()
  for _ = 1, rounds do
    C.nanosleep(length, nil) -- HERE: dozes
  end
  return now() - before
end

io.write("ready\n") io.flush()
io.read("*l")
local napped = naps(30)
local dozed = dozes(120)
io.write("naps ", napped, "\n", "dozes ", dozed, "\n")
