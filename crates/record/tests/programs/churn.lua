-- Makes functions, coroutines and compiled code as fast as it can, and drops all of it again.
io.write("ready\n") io.flush()
io.read("*l")
local kept = {}
local n = 0
while true do
  n = n + 1
  local text = "local a = ... ; local function f" .. n .. "(x) for i = 1, 60 do x = (x * 31 + i) % 1009 end return x end "
    .. "return function(y) local co = coroutine.wrap(function(z) while true do z = coroutine.yield(f" .. n .. "(z)) end end) "
    .. "for i = 1, 20 do y = co(y) end return y end"
  local made = assert(loadstring(text, "=churn " .. n % 50))(n)
  kept[n % 20 + 1] = made
  for _, f in pairs(kept) do f(n) end
  if n % 10 == 0 then collectgarbage() end
  if n % 100 == 0 then jit.flush() end
end
