-- Writes LuaJIT's own account of its compiler to a file, a line an event, tab-separated:
--
--     start  source:line  op       a root trace begins here
--     abort  source:line  op reason the attempt that began here was given up
--     stop   source:line  op       it was compiled
--     flush
--
-- Attempts of side traces and stitched traces are left out: they begin at an exit, not at a bytecode that
-- could be blacklisted. The chunk that loads this gets the path of the file as its argument.

local path = ...
local jutil = require("jit.util")
local vmdef = require("jit.vmdef")

local open = io.open
local floor = math.floor

local begun = {}

local function where(func, pc)
    local info = jutil.funcinfo(func, pc)
    local op = jutil.funcbc(func, pc) % 256
    local name = vmdef.bcnames:sub(op * 6 + 1, op * 6 + 6):gsub(" ", "")
    local line = pc == 0 and info.linedefined or info.currentline
    return info.source .. ":" .. line .. "\t" .. name
end

local function reason(code, info)
    if type(info) == "function" then
        local of = jutil.funcinfo(info)
        info = of.loc or (of.ffid and vmdef.ffnames[of.ffid]) or "C function"
    end
    if type(code) ~= "number" then
        return tostring(code)
    end
    local text = vmdef.traceerr[code]
    if text:find("bytecode") then
        local op = tonumber(info)
        return "NYI: bytecode " .. vmdef.bcnames:sub(op * 6 + 1, op * 6 + 6):gsub(" ", "")
    end
    return text:format(info)
end

jit.attach(function(what, trace, func, pc, other, exit)
    local line
    if what == "flush" then
        line = "flush"
    elseif what == "start" then
        begun[trace] = not other and where(func, pc) or nil
        line = begun[trace] and "start\t" .. begun[trace]
    else
        local start = begun[trace]
        begun[trace] = nil
        if start and what == "abort" then
            line = "abort\t" .. start .. "\t" .. reason(other, exit)
        elseif start and what == "stop" then
            line = "stop\t" .. start
        end
    end
    if line then
        local file = open(path, "a")
        file:write(line, "\n")
        file:close()
    end
end, "trace")
