-- Tells what the VM knows about itself, one fact a line, then keeps running for the seconds given:
-- what a reader from outside must find. Ends by itself.
local seconds = tonumber((...)) or 20
local funcinfo = require("jit.util").funcinfo

local function address(object)
  return (string.format("%p", object))
end

local function leaf(a, b)
  local sum = a

  for i = 1, b do
    sum = sum + i % 7
  end
  return sum
end

local function three(x)
  if x > 0 then
    return leaf(x, 3)
  end
  return 0
end

-- A function of more than 255 lines has wider line numbers.
local wide = {}
for i = 1, 300 do wide[i] = "x = (x or 0) + " .. i end
local wide_function = assert(loadstring("local x\n" .. table.concat(wide, "\n") .. "\nreturn x", "=wide chunk"))
local hostile = assert(loadstring("return 1", "@/srv/<script>\27[2J\n.lua"))
local nameless = assert(loadstring("return 2\n-- second line"))
local stripped = assert(loadstring(string.dump(leaf, true)))

local function describe(tag, f)
  local info = funcinfo(f)
  print("proto", tag, address(f), info.linedefined, info.lastlinedefined, info.bytecodes)
  for pc = 0, info.bytecodes - 1 do
    print("line", tag, pc, funcinfo(f, pc).currentline or -1)
  end
end

describe("leaf", leaf)
describe("three", three)
describe("wide", wide_function)
describe("hostile", hostile)
describe("nameless", nameless)
describe("stripped", stripped)


local function ff(name, f)
  local info = funcinfo(f)
  if info.ffid then print("ffid", name, info.ffid) end
end
for name, value in pairs(_G) do
  if type(value) == "function" then ff(name, value) end
end
for _, library in ipairs { "string", "table", "math", "bit", "os", "io", "debug", "coroutine", "jit" } do
  for name, value in pairs(_G[library]) do
    if type(value) == "function" then ff(library .. "." .. name, value) end
  end
end

-- Compile something, then tell which traces there are.
local total = 0
for i = 1, 500 do total = total + leaf(i, 200) + three(i) end
local traceinfo, tracemc = require("jit.util").traceinfo, require("jit.util").tracemc
for number = 1, 200 do
  local info = traceinfo(number)
  if info then
    local _, start = tracemc(number)
    print("trace", number, info.link, info.linktype, info.nexit, string.format("%.0f", start or 0))
  end
end
print("ready")
io.stdout:flush()
local limit = os.clock() + seconds
while os.clock() < limit do total = total + leaf(3, 100) end
