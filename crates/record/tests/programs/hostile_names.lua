-- Runs functions of chunks whose names try to steer a terminal, a page, or the recorder. Its argument is the path of a FIFO.
local fifo = ...
jit.off()
local body = "local function work(n) local x = 1 for i = 1, n do x = (x * 31 + i) % 1009 end return x end\n"
  .. "return function() return work(20000) end"
local names = {
  "=\27[31mred\27[0m\27]0;title\7",
  "=<script>alert(1)</script>",
  "=two\nlines\rand;semicolons",
  "=bytes \255\254\128",
  "=long " .. ("x"):rep(1000000),
  "@/dev/zero",
  "@/dev/watchdog",
  "@/proc/kmsg",
  "@../../../../../etc/shadow",
  "@" .. fifo,
  "",
  "@",
  "=",
}
local functions = {}
for i, name in ipairs(names) do functions[i] = assert(loadstring(body, name))() end
io.write("ready\n") io.flush()
io.read("*l")
while true do
  for i = 1, #functions do functions[i]() end
end
