-- Three functions that share the CPU 60 : 30 : 10, and say how much each took by the process's own CPU clock.
-- Arguments: CPU seconds to use, "off" to switch the JIT off.
local seconds, mode = ...
if mode == "off" then jit.off() end
local clock = os.clock

local function sixty(n)
  local x = 0
  for i = 1, n do x = (x * 31 + i) % 1000003 end
  return x
end

local function thirty(n)
  local x = 1
  for i = 1, n do x = (x * 37 + i) % 1000033 end
  return x
end

local function ten(n)
  local x = 2
  for i = 1, n do x = (x * 41 + i) % 1000037 end
  return x
end

local used = { sixty = 0, thirty = 0, ten = 0 }

local function timed(name, work, n)
  local before = clock()
  work(n)
  used[name] = used[name] + clock() - before
end

-- Compiles what can be compiled, and finds how much work 10 ms are.
local n = 1000
repeat
  n = n * 2
  local before = clock()
  sixty(n) thirty(n) ten(n)
until clock() - before > 0.030

io.write("ready\n") io.flush()
io.read("*l")
local from = clock()
for name in pairs(used) do used[name] = 0 end
while clock() - from < tonumber(seconds) do
  timed("sixty", sixty, 6 * n)
  timed("thirty", thirty, 3 * n)
  timed("ten", ten, n)
end
for name, s in pairs(used) do io.write(name, " ", s * 1e9, "\n") end
