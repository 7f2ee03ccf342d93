--- A keyed checksum over the words of a request, to tell replayed requests apart.

local bit = require("bit")
local log = require("gateway.log")

local bxor = bit.bxor
local rol = bit.rol
local tobit = bit.tobit

local _M = {}

local ROUND_KEYS = { 0x5bd1e995, 0x1b873593, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1 }


-- One round; additions, rotations and exclusive ors in the manner of a block hash.
local function mix(state, word, key)
    log.debug("round: ", key)
    local a = bxor(state, tobit(word + key))
    a = tobit(rol(a, 13) * 5 + 0x6b64)
    local b = bxor(rol(a, 7), tobit(key))
    b = tobit(b + rol(a, 18))
    a = bxor(a, rol(b, 9))
    b = tobit(b + rol(a, 3))
    a = bxor(rol(a, 11), b)
    return tobit(a + rol(b, 5))
end


--- The checksum of `word`, a number below 2^32.
function _M.of(word)
    local state = tobit(word)
    for i = 1, #ROUND_KEYS do
        state = mix(state, word, ROUND_KEYS[i])
    end
    return state
end


return _M
