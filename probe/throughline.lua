--- The probe of throughline: what LuaJIT's compiler did, and how often functions were called.
--
-- One file, no dependency but LuaJIT. Load it before anything else, so that every module gets its counted
-- functions from the probe:
--
--     init_by_lua_block {
--         require("throughline").start{ count = { "gateway.plugin.filter", "gateway/router.lua:11" } }
--         ...
--     }
--
-- and read it with `throughline calls --name nginx --for 10s`.
--
-- Options of `start`, all of which may be left out:
--
--     count      names of functions to count. "MODULE.FIELD", with further fields for tables in tables
--                ("MODULE.Class.method", "MODULE.Class:method" and the __index of a metatable), "MODULE" for a
--                module that is a function, or "FILE.lua:LINE" for a function that begins on this line of a file
--                whose path ends in FILE: that is how local functions are named
--     requests   a function, named in the same way, that runs once per request; without it throughline uses the
--                count that nginx keeps for stub_status, if it was built with that
--     counting   false: record the compiler's events and wrap nothing (for comparisons)
--     events     false: wrap functions and record no events
--
-- How it works
--
-- Counters and events lie in a mapping of a memfd called "throughline-probe", which is found by that name in
-- /proc/PID/maps and read through /proc/PID/mem. The mapping is private: nginx forks its workers after
-- init_by_lua, and each worker writes to its own copy from then on, so no worker needs a hook of its own, nothing
-- lies in a file system, and nothing is left behind. A reload runs init_by_lua again and makes a new mapping; the
-- old workers keep the old one until they end. Its size is fixed; what does not fit is counted as overflow.
-- FORMATS.md describes every byte.
--
-- A counted function is replaced by a wrapper in the table where it was found, when its module has just been
-- loaded and before its first user can hold it. The wrapper adds 1 to a double in the mapping and calls the function
-- in tail position, so that results and the stack are those of the function itself. It has as many parameters as
-- the function: LuaJIT does not compile a trace that starts in a function that passes `...` on. For functions
-- with `...` it asks for their number first and passes up to eight by name.
--
-- Who holds the function itself calls it uncounted. Such references (upvalues, fields of tables) are looked for
-- from package.loaded, the globals and the registry, and counted; locals of coroutines are not seen.
--
-- LuaJIT may choose other starts for its traces: a wrapper can begin one in the place of its function, and can be given
-- up where the function would not have been. `throughline calls` names wrappers that were given up, and compares runs
-- (`counting = false` beside counting). What the probe costs is measured by cost.py beside this file.
--
-- What may differ for the program: `debug.getinfo` of a counted function describes the wrapper, and a function
-- that is compared with a copy of itself kept from before is no longer equal to it. An error of the probe never
-- reaches the program: `start` returns nil and a message, and what happens later is counted in the mapping.

local ffi = require("ffi")
local bit = require("bit")
local jit = require("jit")
local has_util, jutil = pcall(require, "jit.util")
local has_vmdef, vmdef = pcall(require, "jit.vmdef")

local debug_getinfo = debug.getinfo
local debug_getmetatable = debug.getmetatable
local debug_getupvalue = debug.getupvalue
local debug_setupvalue = debug.setupvalue
local debug_upvalueid = debug.upvalueid
local getfenv = getfenv
local loadstring = loadstring
local next = next
local pcall = pcall
local rawequal = rawequal
local rawget = rawget
local rawset = rawset
local select = select
local string_format = string.format
local table_concat = table.concat
local tonumber = tonumber
local tostring = tostring
local type = type

local _M = { version = 1 }

-- Must agree with FORMATS.md.
local NAME = "throughline-probe"
local MAGIC = "TLPROBE1"
local FUNCTIONS_MAX = 256
local STARTS_MAX = 2048

-- Objects and references that one search for captured functions looks at, at most. A gateway with 100 plugins has
-- some 50,000 objects.
local SEARCH_OBJECTS_MAX = 400000

-- Parameters that are passed on by name to a function with `...`.
local VARARGS_BY_NAME = 8

ffi.cdef([[
struct throughline_probe_function {
    double calls;
    uint32_t state;
    uint32_t captured_references;
    uint32_t flags;
    uint16_t name_length;
    uint16_t note_length;
    char name[168];
    char note[64];
};
struct throughline_probe_start {
    uint32_t sequence;
    uint32_t line;
    double attempts;
    double compiled;
    double aborted;
    double retried;
    uint32_t error;
    uint16_t source_length;
    uint16_t reason_length;
    char op[8];
    char source[168];
    char reason[96];
};
struct throughline_probe {
    char magic[8];
    uint32_t header_bytes;
    uint32_t function_bytes;
    uint32_t start_bytes;
    uint32_t functions_max;
    uint32_t starts_max;
    uint32_t functions_used;
    uint32_t starts_used;
    uint32_t flags;
    double generation;
    double events_start;
    double events_stop;
    double events_abort;
    double events_flush;
    double starts_overflow;
    double functions_overflow;
    double errors;
    uint64_t requests_pointer;
    uint32_t requests_function;
    uint32_t reserved;
    char reserved_too[128];
    struct throughline_probe_function functions[256];
    struct throughline_probe_start starts[2048];
};
struct throughline_probe_pointer { uint64_t *to; };
struct throughline_probe_time { int64_t s; int64_t ns; };
int throughline_probe_memfd(const char *, unsigned int) __asm__("memfd_create");
int throughline_probe_size(int, int64_t) __asm__("ftruncate");
void *throughline_probe_map(void *, size_t, int, int, int, int64_t) __asm__("mmap");
int throughline_probe_unmap(void *, size_t) __asm__("munmap");
int throughline_probe_close(int) __asm__("close");
int throughline_probe_clock(int, struct throughline_probe_time *) __asm__("clock_gettime");
extern struct throughline_probe_pointer throughline_probe_requests __asm__("ngx_stat_requests");
]])

local C = ffi.C

-- The probe's own functions are not worth a trace, and must not show among the program's. The wrappers are chunks of
-- their own, and are compiled.
jit.off(true, true)

-- From the headers of Linux on x86-64.
local MFD_CLOEXEC = 1
local PROT_READ_WRITE = 3
local MAP_PRIVATE = 2
local CLOCK_REALTIME = 0

-- States of a function.
local PENDING, BEFORE_LOAD, AFTER_LOAD, NOT_FOUND = 0, 1, 2, 3
-- Flags of a function.
local SEARCH_CUT, IS_VARARG, IS_LOCAL = 1, 2, 4
-- Flags of the probe.
local HAS_COUNTING, HAS_EVENTS, HAS_REASONS = 1, 2, 4

local NO_FUNCTION = 0xffffffff

-- The mapping, and what belongs to it. One for each Lua VM.
local probe
local anchor

-- Counted functions by index: name, the parts of the name, the function itself, its wrapper.
local counted = {}
-- Functions of the probe and those it wraps: a search does not follow them.
local own = {}


-- Copies as much of `text` as fits, from its end when it is a path, and returns the length of the whole.
local function put(field, size, text, from_end)
    local length = #text
    if length > size then
        text = from_end and text:sub(-size) or text:sub(1, size)
    end
    ffi.copy(field, text, #text)
    return length < 65535 and length or 65535
end


local function mapping()
    local size = ffi.sizeof("struct throughline_probe")
    local fd = C.throughline_probe_memfd(NAME, MFD_CLOEXEC)
    if fd < 0 then
        return nil, "memfd_create: error " .. ffi.errno()
    end
    if C.throughline_probe_size(fd, size) ~= 0 then
        local code = ffi.errno()
        C.throughline_probe_close(fd)
        return nil, "ftruncate: error " .. code
    end
    local address = C.throughline_probe_map(nil, size, PROT_READ_WRITE, MAP_PRIVATE, fd, 0)
    local code = ffi.errno()
    C.throughline_probe_close(fd)
    if ffi.cast("intptr_t", address) == -1 then
        return nil, "mmap: error " .. code
    end
    -- When the VM of an old configuration is closed, so is its mapping.
    anchor = ffi.gc(address, function(it) C.throughline_probe_unmap(it, size) end)
    return ffi.cast("struct throughline_probe *", address)
end


-- The address of nginx's pointer to its count of requests; nginx sets the pointer later.
local function requests_pointer()
    local found, variable = pcall(function() return C.throughline_probe_requests end)
    if not found then
        return 0
    end
    return ffi.cast("uint64_t", ffi.cast("uintptr_t", ffi.cast("void *", variable)))
end


local function write_header(options)
    local time = ffi.new("struct throughline_probe_time")
    C.throughline_probe_clock(CLOCK_REALTIME, time)
    probe.header_bytes = ffi.offsetof("struct throughline_probe", "functions")
    probe.function_bytes = ffi.sizeof("struct throughline_probe_function")
    probe.start_bytes = ffi.sizeof("struct throughline_probe_start")
    probe.functions_max = FUNCTIONS_MAX
    probe.starts_max = STARTS_MAX
    probe.generation = tonumber(time.s) * 1e6 + tonumber(time.ns) / 1000
    probe.requests_pointer = requests_pointer()
    probe.requests_function = NO_FUNCTION
    local flags = 0
    if options.counting ~= false then flags = bit.bor(flags, HAS_COUNTING) end
    if has_vmdef then flags = bit.bor(flags, HAS_REASONS) end
    probe.flags = flags
    -- Last, so that nobody takes a mapping that is being made for a whole one.
    ffi.copy(probe.magic, MAGIC, 8)
end


------------------------------------------------------------------------------
-- The compiler's events.

-- Index of the slot of a start, by its key.
local slot_of = {}
-- Slot of the attempt that is under way, by trace number; false for one without a slot.
local begun = {}


local function op_name(op)
    if not has_vmdef then
        return "op " .. op
    end
    return (vmdef.bcnames:sub(op * 6 + 1, op * 6 + 6):gsub(" ", ""))
end


local function place(func, pc)
    local info = jutil.funcinfo(func, pc)
    local op = op_name(bit.band(jutil.funcbc(func, pc) or 0, 0xff))
    -- At its first bytecode a function has no current line of its own.
    local line = pc == 0 and info.linedefined or info.currentline
    return info.source or "?", line or 0, op
end


local function slot_for(func, pc)
    local source, line, op = place(func, pc)
    local key = source .. "\0" .. line .. "\0" .. op
    local index = slot_of[key]
    if index then
        return index
    end
    index = probe.starts_used
    if index >= STARTS_MAX then
        probe.starts_overflow = probe.starts_overflow + 1
        return false
    end
    local slot = probe.starts[index]
    slot.line = line
    slot.source_length = put(slot.source, 168, source, true)
    put(slot.op, 8, op)
    slot_of[key] = index
    -- After its content: the reader goes by this number.
    probe.starts_used = index + 1
    return index
end


local function reason_of(code, info)
    if type(code) ~= "number" then
        return tostring(code)
    end
    local text = has_vmdef and vmdef.traceerr[code]
    if not text then
        return "trace error " .. code
    end
    if type(info) == "function" then
        local of = jutil.funcinfo(info)
        info = of.loc or (of.ffid and vmdef.ffnames[of.ffid]) or string_format("C function %x", of.addr or 0)
    elseif type(info) == "number" and text:find("bytecode", 1, true) then
        -- The format has %d here or %s, by version; both mean the bytecode.
        return (text:gsub("%%%a", op_name(info)))
    end
    local formatted, whole = pcall(string_format, text, info)
    return formatted and whole or text
end


-- The penalty counts every failed attempt of a root trace except this one, which is tried again at once.
local function is_retry(code)
    local text = has_vmdef and type(code) == "number" and vmdef.traceerr[code]
    return text and text:find("retry", 1, true) == 1
end


local function ended(index, what, code, info)
    local slot = probe.starts[index]
    slot.sequence = slot.sequence + 1
    if what == "stop" then
        slot.compiled = slot.compiled + 1
    elseif is_retry(code) then
        slot.retried = slot.retried + 1
    else
        slot.aborted = slot.aborted + 1
        slot.error = type(code) == "number" and code or NO_FUNCTION
        slot.reason_length = put(slot.reason, 96, reason_of(code, info))
    end
    slot.sequence = slot.sequence + 1
end


local function on_event(what, trace, func, pc, other, more)
    if what == "start" then
        probe.events_start = probe.events_start + 1
        -- Side traces and stitched ones begin at an exit, not at a bytecode that could be given up.
        local index = not other and slot_for(func, pc)
        begun[trace] = index
        if index then
            local slot = probe.starts[index]
            slot.attempts = slot.attempts + 1
        end
    elseif what == "stop" or what == "abort" then
        if what == "stop" then
            probe.events_stop = probe.events_stop + 1
        else
            probe.events_abort = probe.events_abort + 1
        end
        local index = begun[trace]
        begun[trace] = nil
        if index then
            ended(index, what, other, more)
        end
    elseif what == "flush" then
        probe.events_flush = probe.events_flush + 1
    end
end


local function event(...)
    if not pcall(on_event, ...) then
        probe.errors = probe.errors + 1
    end
end


------------------------------------------------------------------------------
-- The search for references.

-- Where `visit` calls for each place that holds a function: kind ("field" or "upvalue"), holder, key or index.
-- Returns false when it was cut short.
local function each_reference(visit)
    local seen = { [own] = true, [counted] = true, [slot_of] = true, [begun] = true, [_M] = true }
    local queue = { package.loaded, _G, debug.getregistry() }
    seen[seen] = true
    seen[queue] = true
    local first, last = 1, #queue
    local cells = {}
    seen[cells] = true
    for i = 1, last do seen[queue[i]] = true end

    local function push(value)
        local kind = type(value)
        if (kind == "table" or kind == "function" or kind == "userdata") and not seen[value] then
            seen[value] = true
            last = last + 1
            queue[last] = value
        end
    end
    own[push] = true
    -- What is behind a wrapper can be reached through the wrapper alone, which is not followed.
    for i = 1, #counted do
        if counted[i].inner then push(counted[i].inner) end
    end

    while first <= last do
        if last > SEARCH_OBJECTS_MAX then
            return false
        end
        local object = queue[first]
        queue[first] = nil
        first = first + 1
        local kind = type(object)
        if kind == "table" then
            for key, value in next, object do
                if type(value) == "function" then visit("field", object, key, value) end
                push(key)
                push(value)
            end
            push(debug_getmetatable(object))
        elseif kind == "userdata" then
            push(debug_getmetatable(object))
        elseif not own[object] then
            push(getfenv(object))
            local index = 1
            while true do
                local name, value = debug_getupvalue(object, index)
                if not name then break end
                if type(value) == "function" then
                    -- Closures share a variable: it is one reference.
                    local known, cell = pcall(debug_upvalueid, object, index)
                    cell = known and tostring(cell) or nil
                    if not cell or not cells[cell] then
                        if cell then cells[cell] = true end
                        visit("upvalue", object, index, value)
                    end
                end
                push(value)
                index = index + 1
            end
        end
    end
    return true
end


-- Counts the references to the functions of `entries` that bypass their counters.
local function count_captured(entries)
    local by_function = {}
    own[count_captured] = true
    for _, entry in next, entries do
        by_function[entry.inner] = entry
        entry.captured = 0
    end
    local function visit(_, _, _, value)
        local entry = by_function[value]
        if entry then entry.captured = entry.captured + 1 end
    end
    own[visit] = true
    counted.searching = by_function
    local whole = each_reference(visit)
    counted.searching = nil
    for _, entry in next, entries do
        local slot = probe.functions[entry.index]
        slot.captured_references = entry.captured
        if not whole then slot.flags = bit.bor(slot.flags, SEARCH_CUT) end
    end
end


------------------------------------------------------------------------------
-- Wrappers.

local function names(count)
    local list = {}
    for i = 1, count do list[i] = "a" .. i end
    return table_concat(list, ", ")
end


-- The source of a wrapper, which is made for the number of parameters that the function has.
local function wrapper_source(parameters, is_vararg)
    if not is_vararg then
        local list = names(parameters)
        return string_format(
            "local counter, inner = ...\n" ..
            "return function(%s) counter[0] = counter[0] + 1 return inner(%s) end\n", list, list)
    end
    local lines = {
        "local counter, inner, select = ...",
        "return function(...)",
        "counter[0] = counter[0] + 1",
        "local n = select('#', ...)",
        "if n == 0 then return inner() end",
    }
    for count = 1, VARARGS_BY_NAME do
        local list = names(count)
        lines[#lines + 1] = string_format("if n == %d then local %s = ... return inner(%s) end", count, list, list)
    end
    lines[#lines + 1] = "return inner(...)\nend"
    return table_concat(lines, "\n")
end


local function wrap(entry, inner)
    local info = debug_getinfo(inner, "Su")
    local is_vararg = info.what == "C" or info.isvararg ~= false
    local source = wrapper_source(info.nparams or 0, is_vararg)
    local chunk = loadstring(source, "=throughline counts " .. entry.name)
    local slot = probe.functions[entry.index]
    local counter = ffi.cast("double *", ffi.cast("char *", slot) + ffi.offsetof("struct throughline_probe_function", "calls"))
    local wrapper = chunk(counter, inner, select)
    entry.inner = inner
    entry.wrapper = wrapper
    own[wrapper] = true
    if is_vararg then slot.flags = bit.bor(slot.flags, IS_VARARG) end
    return wrapper
end


local function note(entry, state, text)
    local slot = probe.functions[entry.index]
    slot.state = state
    slot.note_length = put(slot.note, 64, text or "")
end


-- The table in which `path` ends, its last key and what is there, for a path of fields from `value`.
local function resolve(value, path)
    local holder, key
    for _, field in next, path do
        if type(value) ~= "table" then
            return nil, nil, nil, "there is no table to look up " .. field .. " in"
        end
        holder, key = value, field
        local found = rawget(value, field)
        if found == nil then
            local metatable = debug_getmetatable(value)
            local index = type(metatable) == "table" and rawget(metatable, "__index")
            if type(index) == "table" then
                holder = index
                found = rawget(index, field)
            end
        end
        value = found
        if value == nil then
            return nil, nil, nil, "there is no field " .. field
        end
    end
    return holder, key, value
end


-- Puts a wrapper where the function of `entry` is a field. Returns whether it did.
local function install_field(entry, module_name, value, path, state)
    local holder, key, inner, problem
    if #path == 0 then
        holder, key, inner = package.loaded, module_name, value
    else
        holder, key, inner, problem = resolve(value, path)
    end
    if not inner then
        note(entry, NOT_FOUND, problem)
        return false
    end
    if own[inner] then
        return false
    end
    if type(inner) ~= "function" then
        note(entry, NOT_FOUND, "it is a " .. type(inner))
        return false
    end
    rawset(holder, key, wrap(entry, inner))
    note(entry, state)
    return true
end


-- Whether a chunk's name ends in the path `file`, at a directory's boundary.
local function ends_in(source, file)
    if source:sub(-#file) ~= file then
        return false
    end
    local before = source:sub(-#file - 1, -#file - 1)
    return before == "/" or before == "@" or before == ""
end


-- Replaces local functions, named by file and line, wherever they are referred to.
local function install_lines(entries, state)
    local functions = {}
    counted.searching = functions
    local places = {}
    own[places] = true
    local function visit(kind, holder, key, value)
        local entry = functions[value]
        if entry == nil then
            entry = false
            local info = not own[value] and debug_getinfo(value, "S")
            if info and info.what ~= "C" then
                for _, candidate in next, entries do
                    if info.linedefined == candidate.line and ends_in(info.source, candidate.file) then
                        entry = candidate
                    end
                end
            end
            functions[value] = entry
        end
        if entry then
            places[#places + 1] = { entry = entry, kind = kind, holder = holder, key = key, value = value }
        end
    end
    own[visit] = true
    local whole = each_reference(visit)
    counted.searching = nil

    local installed = {}
    for _, at in next, places do
        local entry = at.entry
        if entry.inner and not rawequal(entry.inner, at.value) then
            -- A closure made anew for each call of the function around it: the first one is counted, others are not.
            local slot = probe.functions[entry.index]
            slot.captured_references = slot.captured_references + 1
        else
            local wrapper = entry.wrapper or wrap(entry, at.value)
            if at.kind == "field" then
                rawset(at.holder, at.key, wrapper)
            else
                debug_setupvalue(at.holder, at.key, wrapper)
            end
            -- The wrapper's own reference must go on being to the function itself.
            installed[entry] = true
            local slot = probe.functions[entry.index]
            slot.flags = bit.bor(slot.flags, IS_LOCAL, whole and 0 or SEARCH_CUT)
            note(entry, state)
        end
    end
    return installed
end


------------------------------------------------------------------------------
-- When to wrap.

-- Whether `entry` may be a field of the module, and the path of fields after the module's name.
local function path_in(entry, module_name)
    local name = entry.name
    if name == module_name then
        return {}
    end
    if name:sub(1, #module_name) ~= module_name or not name:sub(#module_name + 1):match("^[.:]") then
        return nil
    end
    local path = {}
    for field in name:sub(#module_name + 2):gmatch("[^.:]+") do
        path[#path + 1] = field
    end
    return path
end


-- `module_name` has just been loaded as `value`, or was when the probe came.
local function install_from(module_name, value, state)
    local done = {}
    for i = 1, #counted do
        local entry = counted[i]
        local path = not entry.wrapper and not entry.file and path_in(entry, module_name)
        if path and install_field(entry, module_name, value, path, state) then
            done[#done + 1] = entry
        end
    end
    if #done > 0 then
        count_captured(done)
    end
end


-- The file in which a loader's function was defined, or nil.
local function file_of(loader)
    local info = debug_getinfo(loader, "S")
    return info.what ~= "C" and info.source or nil
end


local function lines_of(source)
    local entries = {}
    for i = 1, #counted do
        local entry = counted[i]
        if entry.file and not entry.wrapper and (not source or ends_in(source, entry.file)) then
            entries[#entries + 1] = entry
        end
    end
    return entries
end


local function loaded(module_name, value, source)
    install_from(module_name, value, BEFORE_LOAD)
    local entries = source and lines_of(source) or {}
    if #entries > 0 then
        install_lines(entries, BEFORE_LOAD)
    end
end


local function is_awaited(module_name)
    for i = 1, #counted do
        local entry = counted[i]
        if not entry.wrapper and (entry.file or path_in(entry, module_name)) then
            return true
        end
    end
    return false
end


local function guarded(action, ...)
    local fine = pcall(action, ...)
    if not fine then
        probe.errors = probe.errors + 1
    end
    return fine
end


-- A loader for `require`, first in the row: lets the others find the module and is told when it has been loaded.
local function awaiting_loader(name)
    local loaders = package.loaders
    local asked, awaited = pcall(is_awaited, name)
    if not asked or not awaited then
        return nil
    end
    local messages = {}
    for i = 1, #loaders do
        local find = loaders[i]
        if find ~= awaiting_loader then
            local loader = find(name)
            if type(loader) == "function" then
                local source = file_of(loader)
                return function(...)
                    local result = loader(...)
                    if result ~= nil then
                        package.loaded[name] = result
                    end
                    local value = package.loaded[name]
                    guarded(loaded, name, value, source)
                    -- A module that is a function has been replaced in package.loaded.
                    if result ~= nil then
                        return package.loaded[name]
                    end
                end
            elseif type(loader) == "string" then
                messages[#messages + 1] = loader
            end
        end
    end
    -- The other loaders are asked again by `require`, and say so themselves.
    return nil
end


local function add_function(name)
    for i = 1, #counted do
        if counted[i].name == name then
            return counted[i].index
        end
    end
    local index = probe.functions_used
    if index >= FUNCTIONS_MAX then
        probe.functions_overflow = probe.functions_overflow + 1
        return nil
    end
    local entry = { name = name, index = index }
    local file, line = name:match("^@?(.+):(%d+)$")
    if file then
        entry.file, entry.line = file, tonumber(line)
    end
    local slot = probe.functions[index]
    slot.name_length = put(slot.name, 168, name)
    counted[#counted + 1] = entry
    probe.functions_used = index + 1
    return index
end


local function install(options)
    for _, name in next, options.count or {} do
        add_function(tostring(name))
    end
    if options.requests and options.counting ~= false then
        probe.requests_function = add_function(tostring(options.requests)) or NO_FUNCTION
    end
    if options.counting == false then
        return
    end
    -- Longest names first: of "a" and "a.b" the module "a.b" is the one meant by "a.b.f".
    local there = {}
    for module_name in next, package.loaded do
        if type(module_name) == "string" then there[#there + 1] = module_name end
    end
    table.sort(there, function(a, b) return #a > #b end)
    for i = 1, #there do
        install_from(there[i], package.loaded[there[i]], AFTER_LOAD)
    end
    local entries = lines_of(nil)
    if #entries > 0 then
        install_lines(entries, AFTER_LOAD)
    end
    table.insert(package.loaders, 1, awaiting_loader)
end


local function start(options)
    local problem
    probe, problem = mapping()
    if not probe then
        return nil, problem
    end
    for _, of_probe in next, { event, on_event, ended, slot_for, place, install, install_from, install_lines,
                               install_field, awaiting_loader, loaded, each_reference, wrap, guarded, note, start } do
        own[of_probe] = true
    end
    write_header(options)
    if options.events ~= false and has_util then
        jit.attach(event, "trace")
        probe.flags = bit.bor(probe.flags, HAS_EVENTS)
    end
    install(options)
    return true
end


--- Starts the probe; see the top of this file. Returns true, or nil and what went wrong.
function _M.start(options)
    if probe then
        return nil, "the probe has been started already"
    end
    local fine, done, problem = pcall(start, options or {})
    if not fine then
        return nil, tostring(done)
    end
    return done, problem
end


own[_M.start] = true
return _M
