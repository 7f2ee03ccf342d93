-- Compiled and aborted, thrown away, and compiled again.
local witness = dofile((...) .. "/witness.lua")
local last
local function both(n)
  local sum = 0
  for i = 1, n do sum = sum + i end
  for i = 1, n do last = function() return i end end
  return sum
end
both(1000)
jit.flush()
both(400)
witness.done()
