--- The plugins that come with the gateway and that nobody configured here.
--
-- Each becomes a module of its own under `gateway.plugins.NAME`, with a schema and a handler for each
-- of its phases, so that loading and walking them costs what it costs in a real gateway. No handler
-- ever runs in this lab: no rule and no route names these plugins.

local ngx = ngx
local package = package

local _M = {}


_M.entries = {
    { name = "real-ip", priority = 22827, phases = { "rewrite" } },
    { name = "client-control", priority = 22654, phases = { "rewrite" } },
    { name = "proxy-control", priority = 22481, phases = { "access", "before_proxy" } },
    { name = "request-id", priority = 22308, phases = { "rewrite" } },
    { name = "zipkin", priority = 22135, phases = { "log" } },
    { name = "ext-plugin-pre-req", priority = 21962, phases = { "rewrite" } },
    { name = "fault-injection", priority = 21789, phases = { "access" } },
    { name = "mocking", priority = 21616, phases = { "access" } },
    { name = "serverless-pre-function", priority = 21443, phases = { "rewrite" } },
    { name = "batch-requests", priority = 21270, phases = { "access" } },
    { name = "cors", priority = 21097, phases = { "access" } },
    { name = "ip-restriction", priority = 20924, phases = { "rewrite" } },
    { name = "ua-restriction", priority = 20751, phases = { "access" } },
    { name = "referer-restriction", priority = 20578, phases = { "access" } },
    { name = "csrf", priority = 20405, phases = { "access" } },
    { name = "uri-blocker", priority = 20232, phases = { "access" } },
    { name = "request-validation", priority = 20059, phases = { "rewrite" } },
    { name = "chaitin-waf", priority = 19886, phases = { "access" } },
    { name = "multi-auth", priority = 19713, phases = { "access" } },
    { name = "openid-connect", priority = 19540, phases = { "rewrite" } },
    { name = "cas-auth", priority = 19367, phases = { "access" } },
    { name = "authz-casbin", priority = 19194, phases = { "access" } },
    { name = "authz-casdoor", priority = 19021, phases = { "access" } },
    { name = "wolf-rbac", priority = 18848, phases = { "access" } },
    { name = "ldap-auth", priority = 18675, phases = { "access" } },
    { name = "hmac-auth", priority = 18502, phases = { "access" } },
    { name = "basic-auth", priority = 18329, phases = { "access" } },
    { name = "jwt-auth", priority = 18156, phases = { "access" } },
    { name = "jwe-decrypt", priority = 17983, phases = { "access" } },
    { name = "key-auth", priority = 17810, phases = { "access" } },
    { name = "consumer-restriction", priority = 17637, phases = { "access" } },
    { name = "attach-consumer-label", priority = 17464, phases = { "rewrite" } },
    { name = "forward-auth", priority = 17291, phases = { "access" } },
    { name = "opa", priority = 17118, phases = { "access" } },
    { name = "authz-keycloak", priority = 16945, phases = { "access" } },
    { name = "proxy-cache", priority = 16772, phases = { "header_filter", "body_filter" } },
    { name = "body-transformer", priority = 16599, phases = { "header_filter", "body_filter" } },
    { name = "ai-prompt-template", priority = 16426, phases = { "access" } },
    { name = "ai-prompt-decorator", priority = 16253, phases = { "access" } },
    { name = "ai-prompt-guard", priority = 16080, phases = { "access" } },
    { name = "ai-rag", priority = 15907, phases = { "access" } },
    { name = "ai-content-moderation", priority = 15734, phases = { "access" } },
    { name = "ai-proxy", priority = 15561, phases = { "access", "before_proxy" } },
    { name = "ai-proxy-multi", priority = 15388, phases = { "access", "before_proxy" } },
    { name = "ai-rate-limiting", priority = 15215, phases = { "access" } },
    { name = "proxy-mirror", priority = 15042, phases = { "access", "before_proxy" } },
    { name = "proxy-rewrite", priority = 14869, phases = { "header_filter", "body_filter" } },
    { name = "workflow", priority = 14696, phases = { "access" } },
    { name = "api-breaker", priority = 14523, phases = { "access" } },
    { name = "limit-conn", priority = 14350, phases = { "access" } },
    { name = "limit-count", priority = 14177, phases = { "access" } },
    { name = "limit-req", priority = 14004, phases = { "access" } },
    { name = "gzip", priority = 13831, phases = { "header_filter", "body_filter" } },
    { name = "brotli", priority = 13658, phases = { "header_filter", "body_filter" } },
    { name = "server-info", priority = 13485, phases = { "access" } },
    { name = "traffic-split", priority = 13312, phases = { "access", "before_proxy" } },
    { name = "redirect", priority = 13139, phases = { "access" } },
    { name = "response-rewrite", priority = 12966, phases = { "header_filter", "body_filter" } },
    { name = "mcp-bridge", priority = 12793, phases = { "rewrite" } },
    { name = "degraphql", priority = 12620, phases = { "access" } },
    { name = "kafka-proxy", priority = 12447, phases = { "access", "before_proxy" } },
    { name = "grpc-transcode", priority = 12274, phases = { "header_filter", "body_filter" } },
    { name = "grpc-web", priority = 12101, phases = { "header_filter", "body_filter" } },
    { name = "http-dubbo", priority = 11928, phases = { "access", "before_proxy" } },
    { name = "public-api", priority = 11755, phases = { "access" } },
    { name = "prometheus-remote", priority = 11582, phases = { "log" } },
    { name = "datadog", priority = 11409, phases = { "log" } },
    { name = "lago", priority = 11236, phases = { "log" } },
    { name = "loki-logger", priority = 11063, phases = { "log" } },
    { name = "elasticsearch-logger", priority = 10890, phases = { "log" } },
    { name = "echo", priority = 10717, phases = { "access" } },
    { name = "loggly", priority = 10544, phases = { "log" } },
    { name = "http-logger", priority = 10371, phases = { "log" } },
    { name = "splunk-hec-logging", priority = 10198, phases = { "log" } },
    { name = "skywalking-logger", priority = 10025, phases = { "log" } },
    { name = "google-cloud-logging", priority = 9852, phases = { "log" } },
    { name = "sls-logger", priority = 9679, phases = { "log" } },
    { name = "tcp-logger", priority = 9506, phases = { "log" } },
    { name = "kafka-logger", priority = 9333, phases = { "log" } },
    { name = "rocketmq-logger", priority = 9160, phases = { "log" } },
    { name = "syslog", priority = 8987, phases = { "log" } },
    { name = "udp-logger", priority = 8814, phases = { "log" } },
    { name = "file-logger", priority = 8641, phases = { "log" } },
    { name = "clickhouse-logger", priority = 8468, phases = { "log" } },
    { name = "tencent-cloud-cls", priority = 8295, phases = { "log" } },
    { name = "inspect", priority = 8122, phases = { "access" } },
    { name = "example-plugin", priority = 7949, phases = { "access" } },
    { name = "aws-lambda", priority = 7776, phases = { "access" } },
    { name = "azure-functions", priority = 7603, phases = { "access" } },
    { name = "openwhisk", priority = 7430, phases = { "access" } },
    { name = "openfunction", priority = 7257, phases = { "access" } },
    { name = "serverless-post-function", priority = 7084, phases = { "access" } },
    { name = "ext-plugin-post-req", priority = 6911, phases = { "access" } },
    { name = "ext-plugin-post-resp", priority = 6738, phases = { "delayed_body_filter" } },
    { name = "node-status", priority = 6565, phases = { "access" } },
    { name = "log-rotate", priority = 6392, phases = { "log" } },
    { name = "error-log-logger", priority = 6219, phases = { "log" } },
    { name = "dubbo-proxy", priority = 6046, phases = { "access", "before_proxy" } },
    { name = "ocsp-stapling", priority = 5873, phases = { "access" } },
    { name = "opentelemetry", priority = 5700, phases = { "log" } },
    { name = "skywalking", priority = 5527, phases = { "log" } },
    { name = "exit-transformer", priority = 5354, phases = { "header_filter", "body_filter" } },
    { name = "traffic-label", priority = 5181, phases = { "rewrite" } },
    { name = "request-size-limit", priority = 5008, phases = { "access" } },
    { name = "response-cache", priority = 4835, phases = { "header_filter", "body_filter" } },
    { name = "ip-geo", priority = 4662, phases = { "rewrite" } },
    { name = "device-detect", priority = 4489, phases = { "access" } },
    { name = "bot-detect", priority = 4316, phases = { "access" } },
    { name = "header-filter", priority = 4143, phases = { "access" } },
    { name = "cookie-policy", priority = 3970, phases = { "access" } },
    { name = "session", priority = 3797, phases = { "access" } },
    { name = "saml-auth", priority = 3624, phases = { "access" } },
    { name = "oauth-introspection", priority = 3451, phases = { "access" } },
    { name = "mtls-check", priority = 3278, phases = { "access" } },
    { name = "tenant-router", priority = 3105, phases = { "access", "before_proxy" } },
    { name = "quota-sync", priority = 2932, phases = { "access" } },
    { name = "schema-guard", priority = 2759, phases = { "access" } },
    { name = "json-threat", priority = 2586, phases = { "access" } },
    { name = "xml-threat", priority = 2413, phases = { "access" } },
    { name = "soap-bridge", priority = 2240, phases = { "header_filter", "body_filter" } },
}


local function reject(conf, ctx)
    return ngx.exit(conf.rejected_code or ctx.rejected_code or 503)
end


local function new_plugin(entry)
    local plugin = {
        name = entry.name,
        version = 0.1,
        priority = entry.priority,
        schema = {
            type = "object",
            properties = {
                rejected_code = { type = "integer", minimum = 200, default = 503 },
                timeout = { type = "integer", minimum = 1, default = 3000 },
            },
        },
    }
    for _, phase in ipairs(entry.phases) do
        plugin[phase] = reject
    end
    return plugin
end


--- Makes every entry a module that `require` finds.
function _M.register()
    for _, entry in ipairs(_M.entries) do
        package.preload["gateway.plugins." .. entry.name] = function()
            return new_plugin(entry)
        end
    end
end


return _M
