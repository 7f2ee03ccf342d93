-- The outer loop is hot before the inner one, which runs once or twice each time.
local witness = dofile((...) .. "/witness.lua")
local sum = 0
for i = 1, 2000 do
  for j = 1, 1 + i % 2 do
    for k = 1, 1 + j % 2 do sum = sum + k end
  end
end
witness.done()
