--- A small API gateway: it finds zone and route of a request, asks the limits, signs, and counts.
--
-- Each step is a module with one hot function, called for each entry of a short list, and each hot function
-- writes a debug message. None is ever printed: the level is `warn`.

local limits = require("gateway.limits")
local log = require("gateway.log")
local metrics = require("gateway.metrics")
local networks = require("gateway.networks")
local rewrite = require("gateway.rewrite")
local routes = require("gateway.routes")
local signature = require("gateway.signature")

local ngx = ngx

-- 127.0.0.1, the only client of this lab.
local CLIENT = 0x7f000001

local _M = {}


--- Prepares the gateway; runs once, in the master process.
function _M.init(options)
    log.init(options)
end


function _M.access_phase()
    local uri = ngx.var.uri
    local ctx = { zone = networks.zone_of(CLIENT) }
    ngx.ctx.gateway = ctx

    local route = routes.match(uri)
    if not route then
        return ngx.exit(404)
    end
    ctx.route = route.name
    ctx.rewrites = rewrite.count(uri)
    if not limits.allow(ngx.now(), route.weight) then
        return ngx.exit(429)
    end
    ctx.signature = signature.of(CLIENT)
end


function _M.content_phase()
    local ctx = ngx.ctx.gateway
    ngx.header["X-Zone"] = ctx.zone
    ngx.print("signed ", ctx.signature, "\n")
end


function _M.log_phase()
    local ctx = ngx.ctx.gateway
    if ctx then
        metrics.record(ctx.rewrites)
    end
end


return _M
