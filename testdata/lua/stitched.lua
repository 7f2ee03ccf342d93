-- A call of a C function that is not compiled, in the middle of a loop.
local witness = dofile((...) .. "/witness.lua")
local sum = 0
for i = 1, 400 do
  sum = sum + i * 2
  local home = os.getenv("HOME")
  sum = sum + (home and #home or 0) + i % 7
end
witness.done()
