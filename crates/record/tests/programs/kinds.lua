-- Work of one kind at a time: each argument is KIND=SECONDS of CPU time, done in the order given.

local ffi = require("ffi")
local clock = os.clock

ffi.cdef("int abs(int); size_t strlen(const char *); struct throughline_pair { double a; int b; };")

local kinds = {}
local sink = 0

-- Bytecode alone: nothing here calls C.
function kinds.interpreter()
    local sum = 0
    for i = 1, 20000 do
        sum = sum + i * 0.5
        if sum > 1000 then sum = sum - 1000 end
    end
    sink = sink + sum
end
jit.off(kinds.interpreter)

-- One trace that calls no C.
function kinds.jit()
    local sum = 0
    for i = 1, 200000 do
        sum = sum + i * 0.5
        if sum > 1000 then sum = sum - 1000 end
    end
    sink = sink + sum
end

-- Tables that live for a moment.
function kinds.churn()
    for i = 1, 2000 do
        local t = { i, i + 1, name = i }
        t[i] = t
        sink = sink + #t
    end
end

-- Strings: built, formatted, searched.
function kinds.strings()
    local parts = {}
    for i = 1, 500 do
        parts[i] = "item " .. i .. string.format(" %d %s", i, i * 3)
    end
    local whole = table.concat(parts, ",")
    sink = sink + #whole:gsub("item", "thing")
end

-- Calls and conversions through the FFI, interpreted.
function kinds.ffi()
    local pair = ffi.new("struct throughline_pair")
    for i = 1, 500 do
        pair.a = i
        pair.b = ffi.C.abs(-i)
        sink = sink + pair.b + tonumber(ffi.C.strlen("text"))
    end
end
jit.off(kinds.ffi)

-- Loops that are compiled, thrown away and compiled again.
local source = "local n = ... local s = 0 for i = 1, 80 do s = s + i * n local t = { s } s = t[1] end return s"
function kinds.compiler()
    for n = 1, 20 do
        sink = sink + assert(loadstring(source))(n)
    end
    jit.flush()
end

print("ready")
io.stdout:flush()
io.read()
for _, word in ipairs(arg) do
    local kind, seconds = word:match("^(%a+)=(.+)$")
    local work, till = kinds[kind], clock() + seconds
    while clock() < till do
        work()
    end
end
assert(sink ~= 0)
