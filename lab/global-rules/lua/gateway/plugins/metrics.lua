--- Counts requests, bytes and latencies by label, in the log phase, the way a metrics exporter does:
--- every series is a string made of its name and labels, every latency is a histogram. Series live in
--- a table of this worker and are added to the shared dictionary once per `SYNC_INTERVAL_S`.

local floor = math.floor
local ipairs = ipairs
local ngx = ngx
local pairs = pairs
local string_format = string.format
local table_concat = table.concat
local tonumber = tonumber

-- Upper bounds of the latency buckets, milliseconds.
local BUCKETS_MS = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000 }

local SYNC_INTERVAL_S = 1

local _M = {
    name = "metrics",
    version = 0.2,
    priority = 500,
    schema = {
        type = "object",
        properties = {
            prefer_name = { type = "boolean", default = false },
        },
    },
}

-- Series name to what it grew by since the last sync.
local pending = {}


local function add(series, amount)
    pending[series] = (pending[series] or 0) + amount
end


local function quoted(value)
    value = value or ""
    if value:find('[\\"\n]') then
        value = value:gsub("\\", "\\\\"):gsub('"', '\\"'):gsub("\n", "\\n")
    end
    return '"' .. value .. '"'
end


local function labelled(name, names, values)
    local parts = {}
    for i, label in ipairs(names) do
        parts[i] = label .. "=" .. quoted(values[i])
    end
    return name .. "{" .. table_concat(parts, ",") .. "}"
end


local function observe(name, names, values, value_ms)
    local labels = labelled("", names, values)
    labels = labels:sub(2, -2)
    for _, bound in ipairs(BUCKETS_MS) do
        if value_ms <= bound then
            add(string_format('%s_bucket{%s,le="%d"}', name, labels, bound), 1)
        end
    end
    add(name .. '_bucket{' .. labels .. ',le="+Inf"}', 1)
    add(name .. "_sum{" .. labels .. "}", value_ms)
    add(name .. "_count{" .. labels .. "}", 1)
end


local REQUEST_LABELS = { "code", "route", "matched_uri", "matched_host", "node" }
local LATENCY_LABELS = { "type", "route", "node" }
local BYTES_LABELS = { "direction", "route", "node" }


function _M.log(conf, ctx)
    local var = ngx.var
    local route = conf.prefer_name and ctx.route.name or ctx.route.id
    local node = var.upstream_addr

    add(labelled("gateway_http_status", REQUEST_LABELS,
                 { var.status, route, ctx.route.uri, var.host, node }), 1)

    local request_ms = floor((tonumber(var.request_time) or 0) * 1000)
    local upstream_ms = floor((tonumber(var.upstream_response_time) or 0) * 1000)
    observe("gateway_http_latency", LATENCY_LABELS, { "request", route, node }, request_ms)
    observe("gateway_http_latency", LATENCY_LABELS, { "upstream", route, node }, upstream_ms)

    add(labelled("gateway_bandwidth", BYTES_LABELS, { "ingress", route, node }),
        tonumber(var.request_length) or 0)
    add(labelled("gateway_bandwidth", BYTES_LABELS, { "egress", route, node }),
        tonumber(var.bytes_sent) or 0)
end


local function sync()
    local shared = ngx.shared.metrics
    for series, amount in pairs(pending) do
        local _, err = shared:incr(series, amount, 0)
        if err then
            ngx.log(ngx.ERR, "metrics: cannot add to ", series, ": ", err)
        end
    end
    pending = {}
end


--- Starts the periodic sync; runs once in each worker.
function _M.init_worker()
    ngx.timer.every(SYNC_INTERVAL_S, sync)
end


return _M
