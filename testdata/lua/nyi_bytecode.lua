-- Making a closure is no bytecode that is compiled: the loop is tried a few times, and not given up yet.
local witness = dofile((...) .. "/witness.lua")
local last
for i = 1, 1500 do
  last = function() return i end
end
witness.done()
