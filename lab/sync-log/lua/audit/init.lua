--- Writes what happened to each request into the audit log, one record an event.

local log = require("audit.log")

local ngx = ngx
local string_format = string.format

-- How long records stay in memory at most, with the repair.
local FLUSH_INTERVAL_S = 0.5

local _M = {}

local buffered = false


function _M.init(options)
    buffered = options.buffered
end


--- Prepares one worker.
function _M.init_worker(path)
    log.open(path)
    if buffered then
        ngx.timer.every(FLUSH_INTERVAL_S, log.flush)
    end
end


--- Writes what is still in memory when a worker ends.
function _M.exit_worker()
    log.flush()
end


function _M.content()
    ngx.header.content_type = "text/plain"
    ngx.print("recorded\n")
end


local function record(event, detail)
    return string_format('{"time":%.3f,"worker":%d,"request":"%s-%s","event":"%s","detail":"%s"}\n',
                         ngx.now(), ngx.worker.id(), ngx.var.connection,
                         ngx.var.connection_requests, event, detail)
end


function _M.log_phase()
    local var = ngx.var
    local records = {
        record("received", var.request_method),
        record("client", var.remote_addr),
        record("authorised", "anonymous"),
        record("answered", var.status),
        record("sent", var.bytes_sent),
    }
    if buffered then
        log.push(records)
    else
        log.append(records)
    end
end


return _M
