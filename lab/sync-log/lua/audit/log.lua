--- The audit log: one file that every worker appends to.
--
-- `append` is the straightforward way: take the lock of the file, write each record and wait until it is
-- on the disk, give the lock back. A worker of nginx serves all of its connections on one thread, so
-- while it waits, for the disk or for the other workers' turn, nothing else is served.
--
-- `push` keeps records in the memory of the worker; `flush` writes what has gathered, all at once and
-- without waiting for the disk.

local ffi = require("ffi")

local C = ffi.C
local ipairs = ipairs
local ngx = ngx
local table_concat = table.concat

ffi.cdef[[
int open(const char *path, int flags, ...);
int flock(int fd, int operation);
long write(int fd, const void *bytes, size_t count);
int fdatasync(int fd);
long lseek(int fd, long offset, int whence);
int ftruncate(int fd, long length);
char *strerror(int code);
]]

-- From <fcntl.h> and <sys/file.h> of Linux.
local O_WRONLY = 0x1
local O_CREAT = 0x40
local O_APPEND = 0x400
local O_CLOEXEC = 0x80000
local LOCK_EX = 2
local LOCK_UN = 8
local SEEK_END = 2
local EINTR = 4

local MODE = 0x180 -- 0600

-- A lab may run for hours: past this size the log begins anew.
local BYTES_MAX = 256 * 1024 * 1024

local _M = {}

local fd
local pending = {}
local pending_count = 0


local function fail(what)
    local code = ffi.errno()
    ngx.log(ngx.ERR, "audit log: ", what, ": ", ffi.string(C.strerror(code)))
end


--- Opens the log; once in each worker, because the lock belongs to the open file.
function _M.open(path)
    fd = C.open(path, O_WRONLY + O_CREAT + O_APPEND + O_CLOEXEC, ffi.cast("int", MODE))
    if fd < 0 then
        fail("open")
    end
end


local function write_all(text)
    local bytes = ffi.cast("const char *", text)
    local left = #text
    while left > 0 do
        local written = tonumber(C.write(fd, bytes, left))
        if written < 0 then
            if ffi.errno() ~= EINTR then
                return fail("write")
            end
        else
            bytes = bytes + written
            left = left - written
        end
    end
end


local function locked(action)
    while C.flock(fd, LOCK_EX) ~= 0 do
        if ffi.errno() ~= EINTR then
            return fail("lock")
        end
    end
    if C.lseek(fd, 0, SEEK_END) > BYTES_MAX and C.ftruncate(fd, 0) ~= 0 then
        fail("truncate")
    end
    action()
    C.flock(fd, LOCK_UN)
end


--- Appends `records` in order, each on the disk before the next is written.
function _M.append(records)
    locked(function()
        for _, record in ipairs(records) do
            write_all(record)
            if C.fdatasync(fd) ~= 0 then
                fail("sync")
            end
        end
    end)
end


--- Keeps `records` for the next flush.
function _M.push(records)
    for _, record in ipairs(records) do
        pending_count = pending_count + 1
        pending[pending_count] = record
    end
end


--- Writes all kept records at once.
function _M.flush()
    if pending_count == 0 then
        return
    end
    local text = table_concat(pending, "", 1, pending_count)
    pending = {}
    pending_count = 0
    locked(function()
        write_all(text)
    end)
end


return _M
