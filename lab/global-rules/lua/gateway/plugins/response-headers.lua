--- Sets response headers from its configuration.

local ngx = ngx
local pairs = pairs

local _M = {
    name = "response-headers",
    version = 0.1,
    priority = 899,
    schema = {
        type = "object",
        properties = {
            set = { type = "object", default = nil },
        },
    },
}


function _M.header_filter(conf)
    for name, value in pairs(conf.set or {}) do
        ngx.header[name] = value
    end
end


return _M
