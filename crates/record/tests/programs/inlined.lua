-- Functions that traces inline, with guards all over them so that every few instructions have a snapshot. First each works
-- alone and says how long it took; then loops call all of them in different ways, for the CPU seconds given.
-- Arguments: seconds; "flush" to throw all traces away every few ms.
local seconds, flush = ...
local clock = os.clock
local t = {}
for i = 0, 15 do t[i] = i + 0.5 end

local function alpha(t, i, x)
  x = t[(i + 0) % 16] * 0.25 - x * 0.5 t[(i + 5) % 16] = x
  x = t[(i + 1) % 16] * 0.25 - x * 0.5 t[(i + 6) % 16] = x
  x = t[(i + 2) % 16] * 0.25 - x * 0.5 t[(i + 7) % 16] = x
  x = t[(i + 3) % 16] * 0.25 - x * 0.5 t[(i + 8) % 16] = x
  x = t[(i + 4) % 16] * 0.25 - x * 0.5 t[(i + 9) % 16] = x
  x = t[(i + 5) % 16] * 0.25 - x * 0.5 t[(i + 10) % 16] = x
  x = t[(i + 6) % 16] * 0.25 - x * 0.5 t[(i + 11) % 16] = x
  x = t[(i + 7) % 16] * 0.25 - x * 0.5 t[(i + 12) % 16] = x
  x = t[(i + 8) % 16] * 0.25 - x * 0.5 t[(i + 13) % 16] = x
  x = t[(i + 9) % 16] * 0.25 - x * 0.5 t[(i + 14) % 16] = x
  x = t[(i + 10) % 16] * 0.25 - x * 0.5 t[(i + 15) % 16] = x
  x = t[(i + 11) % 16] * 0.25 - x * 0.5 t[(i + 16) % 16] = x
  x = t[(i + 12) % 16] * 0.25 - x * 0.5 t[(i + 17) % 16] = x
  x = t[(i + 13) % 16] * 0.25 - x * 0.5 t[(i + 18) % 16] = x
  x = t[(i + 14) % 16] * 0.25 - x * 0.5 t[(i + 19) % 16] = x
  x = t[(i + 15) % 16] * 0.25 - x * 0.5 t[(i + 20) % 16] = x
  x = t[(i + 16) % 16] * 0.25 - x * 0.5 t[(i + 21) % 16] = x
  x = t[(i + 17) % 16] * 0.25 - x * 0.5 t[(i + 22) % 16] = x
  x = t[(i + 18) % 16] * 0.25 - x * 0.5 t[(i + 23) % 16] = x
  x = t[(i + 19) % 16] * 0.25 - x * 0.5 t[(i + 24) % 16] = x
  x = t[(i + 20) % 16] * 0.25 - x * 0.5 t[(i + 25) % 16] = x
  x = t[(i + 21) % 16] * 0.25 - x * 0.5 t[(i + 26) % 16] = x
  x = t[(i + 22) % 16] * 0.25 - x * 0.5 t[(i + 27) % 16] = x
  x = t[(i + 23) % 16] * 0.25 - x * 0.5 t[(i + 28) % 16] = x
  x = t[(i + 24) % 16] * 0.25 - x * 0.5 t[(i + 29) % 16] = x
  x = t[(i + 25) % 16] * 0.25 - x * 0.5 t[(i + 30) % 16] = x
  x = t[(i + 26) % 16] * 0.25 - x * 0.5 t[(i + 31) % 16] = x
  x = t[(i + 27) % 16] * 0.25 - x * 0.5 t[(i + 32) % 16] = x
  x = t[(i + 28) % 16] * 0.25 - x * 0.5 t[(i + 33) % 16] = x
  x = t[(i + 29) % 16] * 0.25 - x * 0.5 t[(i + 34) % 16] = x
  x = t[(i + 30) % 16] * 0.25 - x * 0.5 t[(i + 35) % 16] = x
  x = t[(i + 31) % 16] * 0.25 - x * 0.5 t[(i + 36) % 16] = x
  x = t[(i + 32) % 16] * 0.25 - x * 0.5 t[(i + 37) % 16] = x
  x = t[(i + 33) % 16] * 0.25 - x * 0.5 t[(i + 38) % 16] = x
  x = t[(i + 34) % 16] * 0.25 - x * 0.5 t[(i + 39) % 16] = x
  x = t[(i + 35) % 16] * 0.25 - x * 0.5 t[(i + 40) % 16] = x
  return x
end

local function beta(t, i, x)
  x = t[(i + 0) % 16] * 0.25 - x * 0.5 t[(i + 5) % 16] = x
  x = t[(i + 1) % 16] * 0.25 - x * 0.5 t[(i + 6) % 16] = x
  x = t[(i + 2) % 16] * 0.25 - x * 0.5 t[(i + 7) % 16] = x
  x = t[(i + 3) % 16] * 0.25 - x * 0.5 t[(i + 8) % 16] = x
  x = t[(i + 4) % 16] * 0.25 - x * 0.5 t[(i + 9) % 16] = x
  x = t[(i + 5) % 16] * 0.25 - x * 0.5 t[(i + 10) % 16] = x
  x = t[(i + 6) % 16] * 0.25 - x * 0.5 t[(i + 11) % 16] = x
  x = t[(i + 7) % 16] * 0.25 - x * 0.5 t[(i + 12) % 16] = x
  x = t[(i + 8) % 16] * 0.25 - x * 0.5 t[(i + 13) % 16] = x
  x = t[(i + 9) % 16] * 0.25 - x * 0.5 t[(i + 14) % 16] = x
  x = t[(i + 10) % 16] * 0.25 - x * 0.5 t[(i + 15) % 16] = x
  x = t[(i + 11) % 16] * 0.25 - x * 0.5 t[(i + 16) % 16] = x
  x = t[(i + 12) % 16] * 0.25 - x * 0.5 t[(i + 17) % 16] = x
  x = t[(i + 13) % 16] * 0.25 - x * 0.5 t[(i + 18) % 16] = x
  x = t[(i + 14) % 16] * 0.25 - x * 0.5 t[(i + 19) % 16] = x
  x = t[(i + 15) % 16] * 0.25 - x * 0.5 t[(i + 20) % 16] = x
  return x
end

-- The root trace takes one way, a side trace that begins inside of the inlined function takes the other.
local function gamma(t, i, x)
  if i % 2 == 0 then
    x = t[(i + 0) % 16] * 0.25 - x * 0.5 t[(i + 5) % 16] = x
    x = t[(i + 1) % 16] * 0.25 - x * 0.5 t[(i + 6) % 16] = x
    x = t[(i + 2) % 16] * 0.25 - x * 0.5 t[(i + 7) % 16] = x
    x = t[(i + 3) % 16] * 0.25 - x * 0.5 t[(i + 8) % 16] = x
    x = t[(i + 4) % 16] * 0.25 - x * 0.5 t[(i + 9) % 16] = x
    x = t[(i + 5) % 16] * 0.25 - x * 0.5 t[(i + 10) % 16] = x
    x = t[(i + 6) % 16] * 0.25 - x * 0.5 t[(i + 11) % 16] = x
    x = t[(i + 7) % 16] * 0.25 - x * 0.5 t[(i + 12) % 16] = x
    x = t[(i + 8) % 16] * 0.25 - x * 0.5 t[(i + 13) % 16] = x
    x = t[(i + 9) % 16] * 0.25 - x * 0.5 t[(i + 14) % 16] = x
    x = t[(i + 10) % 16] * 0.25 - x * 0.5 t[(i + 15) % 16] = x
    x = t[(i + 11) % 16] * 0.25 - x * 0.5 t[(i + 16) % 16] = x
    x = t[(i + 12) % 16] * 0.25 - x * 0.5 t[(i + 17) % 16] = x
    x = t[(i + 13) % 16] * 0.25 - x * 0.5 t[(i + 18) % 16] = x
    x = t[(i + 14) % 16] * 0.25 - x * 0.5 t[(i + 19) % 16] = x
    x = t[(i + 15) % 16] * 0.25 - x * 0.5 t[(i + 20) % 16] = x
  else
    x = t[(i + 3) % 16] * 0.25 - x * 0.5 t[(i + 8) % 16] = x
    x = t[(i + 4) % 16] * 0.25 - x * 0.5 t[(i + 9) % 16] = x
    x = t[(i + 5) % 16] * 0.25 - x * 0.5 t[(i + 10) % 16] = x
    x = t[(i + 6) % 16] * 0.25 - x * 0.5 t[(i + 11) % 16] = x
    x = t[(i + 7) % 16] * 0.25 - x * 0.5 t[(i + 12) % 16] = x
    x = t[(i + 8) % 16] * 0.25 - x * 0.5 t[(i + 13) % 16] = x
    x = t[(i + 9) % 16] * 0.25 - x * 0.5 t[(i + 14) % 16] = x
    x = t[(i + 10) % 16] * 0.25 - x * 0.5 t[(i + 15) % 16] = x
    x = t[(i + 11) % 16] * 0.25 - x * 0.5 t[(i + 16) % 16] = x
    x = t[(i + 12) % 16] * 0.25 - x * 0.5 t[(i + 17) % 16] = x
    x = t[(i + 13) % 16] * 0.25 - x * 0.5 t[(i + 18) % 16] = x
    x = t[(i + 14) % 16] * 0.25 - x * 0.5 t[(i + 19) % 16] = x
    x = t[(i + 15) % 16] * 0.25 - x * 0.5 t[(i + 20) % 16] = x
    x = t[(i + 16) % 16] * 0.25 - x * 0.5 t[(i + 21) % 16] = x
    x = t[(i + 17) % 16] * 0.25 - x * 0.5 t[(i + 22) % 16] = x
    x = t[(i + 18) % 16] * 0.25 - x * 0.5 t[(i + 23) % 16] = x
  end
  return x
end

local function delta(t, i, x)
  return gamma(t, i, x)
end

-- Each call needs the result of the one before, so that a core cannot do two of them at once.
local loops = {}

function loops.alpha(n)
  local x = 0
  for i = 1, n do x = alpha(t, i, x) end
  return x
end

function loops.beta(n)
  local x = 0
  for i = 1, n do x = beta(t, i, x) end
  return x
end

function loops.gamma(n)
  local x = 0
  for i = 1, n do x = gamma(t, i, x) end
  return x
end

function loops.root(n)
  local x = 0
  for i = 1, n do
    x = alpha(t, i, x)
    x = beta(t, i, x)
    x = gamma(t, i, x)
  end
  return x
end

function loops.side(n)
  local x = 0
  for i = 1, n do
    if i % 3 == 0 then
      x = alpha(t, i, x)
    elseif i % 3 == 1 then
      x = beta(t, i, x)
    else
      x = gamma(t, i, x)
    end
  end
  return x
end

-- A function that is not compiled: the trace ends there, and another one goes on behind it. Work enough for each trace that
-- what it costs to enter it is little.
function loops.stitched(n)
  local x = 0
  for i = 1, n do
    x = alpha(t, i, alpha(t, i, alpha(t, i, x)))
    collectgarbage("count")
    x = beta(t, i, beta(t, i, beta(t, i, x)))
    collectgarbage("count")
    x = gamma(t, i, gamma(t, i, gamma(t, i, x)))
  end
  return x
end

-- A tail call puts its function into the frame of the one that calls.
function loops.tailed(n)
  local x = 0
  for i = 1, n do
    x = alpha(t, i, x)
    x = beta(t, i, x)
    x = delta(t, i, x)
  end
  return x
end

for _, name in ipairs { "alpha", "beta", "gamma" } do
  loops[name](1000)
  -- The quickest of some: others may have the machine at the same time.
  local best = math.huge
  for _ = 1, 40 do
    local before = clock()
    loops[name](40000)
    best = math.min(best, clock() - before)
  end
  print(name .. " " .. best / 40000 * 1e9)
end
print("ready")
io.stdout:flush()
local modes = { "root", "side", "stitched", "tailed" }
local till = clock() + tonumber(seconds)
while clock() < till do
  for _, mode in ipairs(modes) do
    local slice = clock() + 0.02
    repeat
      loops[mode](flush and 20000 or 1000)
      if flush then jit.flush() end
    until clock() > slice
  end
end
