-- Runs for the seconds given and ends by itself. In any Lua.
local seconds = tonumber((...)) or 20
print("ready")
io.stdout:flush()
local limit = os.clock() + seconds
while os.clock() < limit do end
