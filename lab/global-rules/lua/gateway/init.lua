--- A small API gateway. nginx calls one `http_*_phase` function per phase; each of them runs the
--- global rules for the phase entries it stands for:
--
--     access         rewrite, access, before_proxy
--     header filter  header_filter
--     body filter    body_filter, delayed_body_filter   (nginx calls it for the data and for the end)
--     log            log
--
-- which makes nine entries for a request with one data buffer.

local config = require("gateway.config")
local plugin = require("gateway.plugin")
local router = require("gateway.router")

-- Kept in a local, as hot code does: whoever replaces the field later is not called from here.
local filter = plugin.filter
local ipairs = ipairs
local ngx = ngx

local _M = {}

-- Whether the list of plugins is kept for the rest of the request (the repair).
local reuse_list = false


--- Prepares the gateway; runs once, in the master process.
function _M.init(options)
    reuse_list = options.reuse_list
    require("gateway.plugins.catalog").register()
    local count = plugin.load(config.plugin_names(), config.plugin_settings)
    router.build(config.routes)
    ngx.log(ngx.INFO, "gateway: ", count, " plugins loaded")
end


-- The list depends on the rule and the route alone, so within a request it is built again only when
-- one of them was replaced.
local function plugins_of(ctx, rule, route)
    local kept = reuse_list and ctx.plugin_lists[rule.id]
    if kept and kept.rule == rule and kept.route == route then
        return kept.list
    end

    local list = filter(rule, route)
    if reuse_list then
        ctx.plugin_lists[rule.id] = { rule = rule, route = route, list = list }
    end
    return list
end


local function run_global_rules(ctx, phase)
    for _, rule in ipairs(config.global_rules) do
        local list = plugins_of(ctx, rule, ctx.route)
        plugin.run(phase, list, ctx)
    end
end


function _M.http_access_phase()
    local ctx = { plugin_lists = {} }
    ngx.ctx.gateway = ctx
    ctx.route = router.match(ngx.var.uri)
    if not ctx.route then
        return ngx.exit(404)
    end

    run_global_rules(ctx, "rewrite")
    run_global_rules(ctx, "access")
    run_global_rules(ctx, "before_proxy")
end


function _M.http_header_filter_phase()
    local ctx = ngx.ctx.gateway
    if ctx then
        run_global_rules(ctx, "header_filter")
    end
end


function _M.http_body_filter_phase()
    local ctx = ngx.ctx.gateway
    if ctx then
        run_global_rules(ctx, "body_filter")
        run_global_rules(ctx, "delayed_body_filter")
    end
end


function _M.http_log_phase()
    local ctx = ngx.ctx.gateway
    if ctx then
        run_global_rules(ctx, "log")
    end
end


return _M
