-- More loops than the table of traces has room for.
local witness = dofile((...) .. "/witness.lua")
jit.opt.start("maxtrace=20")
for n = 1, 90 do
  loadstring("local x = 0 for i = 1, 200 do x = x + i end", "=chunk" .. n)()
end
witness.done()
