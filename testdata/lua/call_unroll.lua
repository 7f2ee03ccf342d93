-- Recursion that branches twice.
local witness = dofile((...) .. "/witness.lua")
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
fib(18)
witness.done()
