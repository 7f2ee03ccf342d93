--- What an operator configured: the global rules, the routes, and which plugins are loaded.
--
-- Two plugins are configured globally, `metrics` also on a route. All the others are loaded because
-- the default list loads them, as gateways do.

local catalog = require("gateway.plugins.catalog")

local _M = {}


_M.global_rules = {
    {
        id = "1",
        plugins = {
            ["metrics"] = { prefer_name = false },
            ["response-headers"] = { set = { ["X-Gateway"] = "throughline-lab" } },
        },
    },
}


_M.routes = {
    {
        id = "r1",
        name = "hello",
        uri = "/",
        plugins = {
            ["metrics"] = { prefer_name = true },
        },
    },
}


_M.plugin_settings = {
    switched_off = {
        ["example-plugin"] = true,
        ["inspect"] = true,
        ["node-status"] = true,
        ["server-info"] = true,
    },
    attributes = {
        ["log-rotate"] = { interval_s = 3600, files_max = 168 },
        ["skywalking"] = { service = "gateway", report_interval_s = 3 },
        ["opentelemetry"] = { batch_spans = 256, drop_on_full = true },
        ["zipkin"] = { span_version = 2 },
        ["limit-conn"] = { dictionary = "limits" },
        ["limit-count"] = { dictionary = "limits" },
        ["metrics"] = { prefix = "gateway" },
        ["redirect"] = { https_port = 443 },
        ["server-info"] = { report_ttl_s = 60 },
    },
}


function _M.plugin_names()
    local names = { "metrics", "response-headers" }
    for _, entry in ipairs(catalog.entries) do
        names[#names + 1] = entry.name
    end
    return names
end


return _M
