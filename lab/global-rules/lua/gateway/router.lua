--- Exact-match router: a request path to the route that serves it.

local ipairs = ipairs

local _M = {}

local by_uri = {}


function _M.build(routes)
    by_uri = {}
    for _, route in ipairs(routes) do
        by_uri[route.uri] = route
    end
end


--- The route of `uri`, or nil.
function _M.match(uri)
    return by_uri[uri]
end


return _M
