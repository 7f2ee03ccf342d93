-- A function that is given up, called by a loop that is given up with it.
local witness = dofile((...) .. "/witness.lua")
local function make(i)
  return function() return i end
end
local function caller()
  for i = 1, 300000 do make(i) end
end
caller()
for i = 1, 100 do local x = i end
witness.done()
