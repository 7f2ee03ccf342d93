-- A function for which the compiler is switched off, and one that is compiled.
local witness = dofile((...) .. "/witness.lua")
local function off(n)
  local sum = 0
  for i = 1, n do sum = sum + i end
  return sum
end
jit.off(off)
off(1000)
local sum = 0
for i = 1, 1000 do sum = sum + i end
witness.done()
