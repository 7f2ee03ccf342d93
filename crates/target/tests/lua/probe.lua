-- Loads the probe, then a module that it counts, calls it a number of times that is known, and says what the VM
-- itself tells of its traces. Arguments: the probe, a directory to write modules into, when to start the probe.

local probe_path, directory, when = ...

local function write(name, text)
  local file = assert(io.open(directory .. "/" .. name .. ".lua", "w"))
  file:write(text)
  file:close()
end

write("shop", [[
local shop = {}
local function price(x) return x + 1 end
function shop.total(a, b) return price(a) + b end
function shop.many(...) return select("#", ...), ... end
shop.Cart = {}
shop.Cart.__index = shop.Cart
function shop.Cart:add(x) self.sum = (self.sum or 0) + x return self end
function shop.fails() error("as always", 0) end
return shop
]])
write("buyer", [[
local total = require("shop").total
return { buy = function(n) return total(n, 1) end }
]])
write("level", "return function(x) return x, debug.getinfo(2, 'l').currentline end\n")
package.path = directory .. "/?.lua;" .. package.path

local probe = dofile(probe_path)
local function start()
  assert(probe.start { count = { "shop.total", "shop.many", "shop.Cart:add", "shop.fails", "shop.lua:2", "level",
                                 "shop.nothing", "never.loaded", "string.rep" } })
  assert(probe.start {} == nil, "a second start is refused")
end

if when == "early" then start() end
local shop, buyer, level = require("shop"), require("buyer"), require("level")
if when == "late" then start() end

local function pack(...) return { n = select("#", ...), ... } end

for n = 0, 12 do
  local values = {}
  for i = 1, n do values[i] = i end
  local got = pack(shop.many(unpack(values, 1, n)))
  assert(got.n == n + 1 and got[1] == n and got[n + 1] == n)
end
local nils = pack(shop.many(nil, nil))
assert(nils.n == 3 and nils[1] == 2)

assert(shop.total(1, 2, "dropped") == 4)
for i = 1, 1000 do assert(shop.total(i, i) == 2 * i + 1) end
for i = 1, 500 do assert(buyer.buy(i) == i + 2) end
local cart = setmetatable({}, shop.Cart)
for _ = 1, 70 do assert(cart:add(1) == cart) end
assert(cart.sum == 70)
for _ = 1, 3 do
  local fine, message = pcall(shop.fails)
  assert(not fine and message == "as always")
end
local here = debug.getinfo(1, "l").currentline
local x, line = level("x")
assert(x == "x" and line == here + 1, "the counter leaves no frame")

-- A loop that cannot be compiled, eleven times.
local junk
local function nyi() for i = 1, 60000 do junk = function() return i end end end
nyi() nyi()
local jutil, bcnames = require("jit.util"), require("jit.vmdef").bcnames
local blacklisted
for pc = 1, 100 do
  local op = jutil.funcbc(nyi, pc)
  if not op then break end
  local name = bcnames:sub(op % 256 * 6 + 1, op % 256 * 6 + 6):gsub(" ", "")
  if name == "IFORL" then blacklisted = true end
end
print("nyi", jutil.funcinfo(nyi).linedefined, blacklisted and "given up" or "tried")
print("ready")
io.stdout:flush()
local limit = os.time() + 30
while os.time() < limit do os.execute("sleep 0.1") end
