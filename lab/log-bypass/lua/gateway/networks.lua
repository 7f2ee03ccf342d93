--- Which network a client belongs to.

local bit = require("bit")
local log = require("gateway.log")

local bxor = bit.bxor
local rshift = bit.rshift

local _M = {}

-- Base address and length of the prefix. The last one holds every address.
local NETWORKS = {
    { base = 0x0a000000, prefix = 8, zone = "office" },
    { base = 0xac100000, prefix = 12, zone = "cluster" },
    { base = 0xc0a80000, prefix = 16, zone = "home" },
    { base = 0x64400000, prefix = 10, zone = "carrier" },
    { base = 0xa9fe0000, prefix = 16, zone = "link" },
    { base = 0xc0000200, prefix = 24, zone = "example" },
    { base = 0xc6336400, prefix = 24, zone = "example" },
    { base = 0x00000000, prefix = 0, zone = "public" },
}


local function contains(network, address)
    log.debug("network considered: ", network.zone)
    local prefix = network.prefix
    local differing = bxor(network.base, address)
    -- A shift by 32 bits would be none.
    return prefix == 0 or rshift(differing, 32 - prefix) == 0
end


--- The zone of the IPv4 address given as a number.
function _M.zone_of(address)
    local zone
    for i = 1, #NETWORKS do
        local network = NETWORKS[i]
        if not zone and contains(network, address) then
            zone = network.zone
        end
    end
    return zone
end


return _M
