-- More code than the areas of machine code have room for.
local witness = dofile((...) .. "/witness.lua")
jit.opt.start("sizemcode=32", "maxmcode=32")
for n = 1, 150 do
  local body = ("x = x * 1.5 + i % " .. n .. " "):rep(20)
  loadstring("local x = 0 for i = 1, 200 do " .. body .. " end", "=chunk" .. n)()
end
witness.done()
