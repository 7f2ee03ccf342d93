--- The gateway's logging: a level, and for each message where it came from.
--
-- Messages below the level are dropped. The question is when: `observe` gathers the phase, the calling
-- line and the request's context for every message, and looks at the level only when it has them.

local debug_getinfo = debug.getinfo
local get_phase = ngx.get_phase
local ngx = ngx
local ngx_log = ngx.log
local pcall = pcall

local DEBUG = ngx.DEBUG
local WARN = ngx.WARN

local _M = {}

-- Messages above this number are not written; nginx counts downwards from debug (8) to stderr (0).
local level_max = WARN

-- Whether the level is looked at before anything else (the repair).
local return_first = false


function _M.init(options)
    return_first = options.return_first
end


-- Phase, caller and context of a message. A logger must not fail its caller, whatever phase it is called
-- in, so all that could fail is done inside pcall.
local function observe(level, message, value)
    local ok, phase, caller, route = pcall(function()
        local ctx = ngx.ctx.gateway
        return get_phase(), debug_getinfo(4, "Sl"), ctx and ctx.route
    end)
    if level > level_max then
        return
    end
    if not ok then
        ngx_log(level, message, value)
        return
    end
    ngx_log(level, phase, " ", caller.short_src, ":", caller.currentline, " ",
            route or "-", " ", message, value)
end


function _M.debug(message, value)
    if return_first and DEBUG > level_max then
        return
    end
    observe(DEBUG, message, value)
end


return _M
