-- Every way in which a Lua function can come to run, each for 0.15 s of CPU.
-- Arguments: "off" to switch the JIT off, milliseconds of CPU per call of `spin`.
local mode, milliseconds = ...
if mode == "off" then jit.off() end
local clock = os.clock
local n = 1000

local function spin()
  local x = 0
  for i = 1, n do x = (x * 31 + i) % 1000003 end
  return x
end

local function recurse(depth)
  if depth == 1 then
    spin() -- HERE: bottom
    return 0
  end
  local x = recurse(depth - 1) -- HERE: recurse
  return x + 1
end

local function recursion()
  local x = recurse(50) -- HERE: recursion
  return x
end

local function in_coroutine()
  for _ = 1, 3 do
    spin() -- HERE: in_coroutine
    coroutine.yield()
  end
end

local function resumes()
  local step = coroutine.wrap(in_coroutine)
  for _ = 1, 3 do
    step() -- HERE: resumes
  end
end

local function computed()
  local x = spin() -- HERE: computed
  return x
end

local function added()
  local x = spin() -- HERE: added
  return x
end

local magic = setmetatable({}, { __index = computed, __add = added })

local function reads()
  local x = magic.field -- HERE: reads
  return x
end

local function adds()
  local x = magic + 1 -- HERE: adds
  return x
end

local function takes_any(...)
  local given = select("#", ...)
  spin() -- HERE: takes_any
  return given
end

local function gives_any()
  local x = takes_any(1, nil, 3) -- HERE: gives_any
  return x
end

local function protected()
  spin() -- HERE: protected
end

local function protects()
  local ok = pcall(protected) -- HERE: protects
  return ok
end

local function replacement()
  spin() -- HERE: replacement
  return "y"
end

local function replaces()
  local s = string.gsub("x", "x", replacement) -- HERE: replaces
  return s
end

local function less(a, b)
  spin() -- HERE: less
  return a < b
end

local function sorts()
  table.sort({ 2, 1 }, less) -- HERE: sorts
end

local function next_one(_, i)
  if i < 3 then
    spin() -- HERE: next_one
    return i + 1
  end
end

local function iterates()
  local last
  for i in next_one, nil, 0 do -- HERE: iterates
    last = i
  end
  return last
end

repeat
  n = n * 2
  local before = clock()
  spin()
until (clock() - before) * 1e3 > tonumber(milliseconds)

local shapes = { recursion, resumes, reads, adds, gives_any, protects, replaces, sorts, iterates }

io.write("ready\n") io.flush()
io.read("*l")
for _, shape in ipairs(shapes) do
  local till = clock() + 0.15
  repeat shape() until clock() > till
end
