--- Token buckets: how much each class of requests may still take.

local log = require("gateway.log")

local min = math.min

local _M = {}

local BUCKETS = {
    { class = "address", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
    { class = "route", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
    { class = "zone", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
    { class = "account", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
    { class = "service", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
    { class = "all", per_s = 1e9, burst = 1e9, tokens = 1e9, seen = 0 },
}


local function take(bucket, now, weight)
    log.debug("bucket asked: ", bucket.class)
    local passed = now - bucket.seen
    local tokens = min(bucket.tokens + passed * bucket.per_s, bucket.burst)
    bucket.seen = now
    if tokens < weight then
        bucket.tokens = tokens
        return false
    end
    bucket.tokens = tokens - weight
    return true
end


--- Whether a request of `weight` may pass all buckets at the time `now` in seconds.
function _M.allow(now, weight)
    local allowed = true
    for i = 1, #BUCKETS do
        allowed = take(BUCKETS[i], now, weight) and allowed
    end
    return allowed
end


return _M
