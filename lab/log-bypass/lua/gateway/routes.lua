--- Longest-prefix router over a short list.

local log = require("gateway.log")

local sub = string.sub

local _M = {}

local ROUTES = {
    { name = "login", prefix = "/login", weight = 2 },
    { name = "orders", prefix = "/orders", weight = 3 },
    { name = "stock", prefix = "/stock", weight = 3 },
    { name = "search", prefix = "/search", weight = 5 },
    { name = "images", prefix = "/images", weight = 1 },
    { name = "admin", prefix = "/admin", weight = 8 },
    { name = "health", prefix = "/health", weight = 1 },
    { name = "root", prefix = "/", weight = 1 },
}


-- Length of the prefix when the route serves `uri`, else 0.
local function fit(route, uri)
    log.debug("route considered: ", route.name)
    local prefix = route.prefix
    local length = #prefix
    if length > #uri or sub(uri, 1, length) ~= prefix then
        return 0
    end
    return length
end


--- The route that serves `uri`, or nil.
function _M.match(uri)
    local best
    local longest = 0
    for i = 1, #ROUTES do
        local route = ROUTES[i]
        local length = fit(route, uri)
        if length > longest then
            longest = length
            best = route
        end
    end
    return best
end


return _M
