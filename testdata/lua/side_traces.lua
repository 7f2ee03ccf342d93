-- A loop with branches, and a function that it inlines.
local witness = dofile((...) .. "/witness.lua")
local function leaf(x)
  if x % 3 == 0 then return x + 1 end
  return x - 1
end
local sum = 0
for i = 1, 3000 do
  if i % 5 == 0 then sum = sum + leaf(i) else sum = sum - leaf(i) end
end
witness.done()
