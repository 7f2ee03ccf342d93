-- Lua that calls C that calls Lua that calls C; C is what tests/programs/host.c offers.
local mode = ...

local function inner()
  c_spin() -- HERE: inner
  return 1
end

local function outer()
  c_middle(inner) -- HERE: outer
  return 1
end

local function buffered()
  c_buffer(inner) -- HERE: buffered
  return 1
end

local function deeper()
  c_middle(outer) -- HERE: deeper
  return 1
end

local run = { outer = outer, buffered = buffered, deeper = deeper }
local work = run[mode] or outer
for _ = 1, 150 do
  work()
end
