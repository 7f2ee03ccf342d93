-- Loops within loops whose lengths change each time.
local witness = dofile((...) .. "/witness.lua")
local sum = 0
local function inner(n)
  local i = 0
  while i < n do i = i + 1; sum = sum + i end
end
for i = 1, 400 do inner(i % 3) inner(i % 5) inner(i % 2) end
for i = 1, 400 do inner(i % 40) end
witness.done()
