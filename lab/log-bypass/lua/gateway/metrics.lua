--- Histograms of what passed through, kept in the worker.

local log = require("gateway.log")

local _M = {}

local SERIES = {
    { name = "size", bound = 1024, below = 0, above = 0, sum = 0 },
    { name = "weight", bound = 4, below = 0, above = 0, sum = 0 },
    { name = "rules", bound = 1, below = 0, above = 0, sum = 0 },
    { name = "zone", bound = 8, below = 0, above = 0, sum = 0 },
    { name = "status", bound = 400, below = 0, above = 0, sum = 0 },
    { name = "requests", bound = 2, below = 0, above = 0, sum = 0 },
}


local function add(series, value)
    log.debug("series: ", series.name)
    local sum = series.sum + value
    series.sum = sum
    if value < series.bound then
        series.below = series.below + 1
    else
        series.above = series.above + 1
    end
end


--- Counts a request of which `value` is the size.
function _M.record(value)
    for i = 1, #SERIES do
        add(SERIES[i], value)
    end
end


return _M
