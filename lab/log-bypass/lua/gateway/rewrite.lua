--- Rewrites the path of a request by rules.

local log = require("gateway.log")

local byte = string.byte

local _M = {}

-- A rule applies to paths that begin with `first` and are at least `length_min` bytes long.
local RULES = {
    { first = 0x7e, length_min = 2, note = "home directories" },
    { first = 0x2e, length_min = 1, note = "hidden files" },
    { first = 0x25, length_min = 3, note = "encoded slashes" },
    { first = 0x3b, length_min = 2, note = "path parameters" },
    { first = 0x5c, length_min = 1, note = "backslashes" },
    { first = 0x2f, length_min = 64, note = "deep paths" },
}


local function applies(rule, uri)
    log.debug("rule considered: ", rule.note)
    local length = #uri
    if length < rule.length_min then
        return false
    end
    local first = byte(uri, 1)
    local last = byte(uri, length)
    return first == rule.first or last == rule.first and first ~= last
end


--- How many rules apply to `uri`.
function _M.count(uri)
    local count = 0
    for i = 1, #RULES do
        if applies(RULES[i], uri) then
            count = count + 1
        end
    end
    return count
end


return _M
