-- A program that works in one function for as long as it is let: the line of each call is marked.
-- Arguments: "off" to switch the JIT off; CPU seconds after which it ends by itself.
local mode, seconds = ...
if mode == "off" and jit then jit.off() end

local function work(n)
  local x = 0
  for i = 1, n do x = (x * 31 + i) % 1000003 end -- HERE: work
  return x
end

local function lap(n)
  local x = work(n) -- HERE: lap
  return x
end

local magic = setmetatable({}, { __index = function(_, n)
  local x = lap(n) -- HERE: __index
  return x
end })

local function drive(n)
  local x = magic[n] -- HERE: drive
  return x
end

local till = os.clock() + tonumber(seconds)
while os.clock() < till do
  pcall(drive, 20000)
end
