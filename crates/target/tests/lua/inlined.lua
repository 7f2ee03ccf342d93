-- Compiles traces that inline functions in every way there is, tells what `jit.util` says of them, then keeps running for
-- the seconds given. Ends by itself.
local seconds = tonumber((...)) or 20
local util = require("jit.util")
local ffi = require("ffi")
local bits = ffi.new("union { double number; uint64_t word; }")

jit.opt.start("hotloop=5", "hotexit=3")

local sink = {}

local function leaf(t, i)
  t[i % 8] = i
  return t[(i + 1) % 8] or 0
end

local function middle(t, i)
  local x = leaf(t, i)
  return x + 1
end

local function tail(t, i)
  return middle(t, i)
end

local function many(...)
  local a, b = ...
  sink[a % 4] = b
  return leaf(sink, a)
end

local indexed = setmetatable({}, { __index = function(_, i)
  local x = leaf(sink, i)
  return x
end })

local added = setmetatable({}, { __add = function(a, i)
  local x = leaf(sink, i)
  return x
end })

local function protected(t, i)
  local ok, x = pcall(middle, t, i)
  return x
end

-- Of a function with many closures a trace does not hold which one it is.
local closures = {}
for i = 0, 19 do
  closures[i] = function(j)
    local x = leaf(sink, j + i)
    return x
  end
end

local function made_anew(i)
  local x = closures[i % 20](i)
  return x
end

local function branches(t, i)
  if i % 3 == 0 then
    return leaf(t, i)
  elseif i % 3 == 1 then
    local x = middle(t, i)
    return x
  end
  return many(i, i)
end

local function next_one(_, i)
  if i < 40 then
    sink[i % 8] = i
    return i + 1
  end
end

local function iterates()
  local last = 0
  for i in next_one, nil, 0 do last = last + i end
  return last
end

local function stitched(t, i)
  local x = leaf(t, i)
  -- A function that is not compiled: the trace ends there and is continued by another one.
  local y = #os.date("!%H") + x
  return y + leaf(t, i + 1)
end

local function up(t, n)
  if n == 0 then return 0 end
  return 1 + up(t, n - 1) + leaf(t, n)
end

local function run(n)
  local x = 0
  for i = 1, n do x = x + leaf(sink, i) end
  for i = 1, n do x = x + middle(sink, i) end
  for i = 1, n do x = x + tail(sink, i) end
  for i = 1, n do x = x + many(i, i) end
  for i = 1, n do x = x + indexed[i] end
  for i = 1, n do x = x + (added + i) end
  for i = 1, n do x = x + protected(sink, i) end
  for i = 1, n do x = x + made_anew(i) end
  for i = 1, n do x = x + branches(sink, i) end
  for _ = 1, n do x = x + iterates() end
  for i = 1, n do x = x + stitched(sink, i) end
  for _ = 1, n do x = x + up(sink, 10) end
  return x
end

for _ = 1, 20 do run(50) end
jit.off()
-- What is told must stay true.
collectgarbage()
collectgarbage("stop")

-- The frames of a snapshot, innermost first, as "line of the function:link word".
local function frames(trace, snapshot)
  local entries, by_slot, told = util.tracesnap(trace, snapshot), {}, {}
  for n = 2, #entries - 1 do
    local entry = entries[n]
    by_slot[bit.rshift(entry, 24)] = entry
  end
  for slot = 255, 2, -1 do
    local entry = by_slot[slot]
    if entry and bit.band(entry, 0x10000) ~= 0 then
      local f = util.tracek(trace, bit.band(by_slot[slot - 1], 0xffff) - 0x8000)
      bits.number = util.tracek(trace, bit.band(entry, 0xffff) - 0x8000)
      local info = type(f) == "function" and util.funcinfo(f)
      local name = not info and "anew" or info.linedefined or (info.ffid and "fast" .. info.ffid) or "c"
      told[#told + 1] = name .. ":" .. tostring(bits.word):gsub("ULL", "")
    end
  end
  return table.concat(told, " ")
end

for trace = 1, 500 do
  local info = util.traceinfo(trace)
  if info then
    print("trace", trace, info.link, info.linktype, info.nexit)
    for snapshot = 0, info.nexit - 1 do
      print("snapshot", trace, snapshot, frames(trace, snapshot))
    end
  end
end
print("ready")
io.stdout:flush()
local limit = os.clock() + seconds
while os.clock() < limit do for _ = 1, 1000 do end end
