-- What LuaJIT itself says of its compiler, for comparison with a reader from outside: every event of
-- jit.attach while a program ran, and jit.util's view of what is left. One fact a line:
--   trace NUMBER LINK LINKTYPE START-LINE START-INSTRUCTION PARENT
--   aborts LINE INSTRUCTION COUNT LAST-REASON        (root starts, since the last flush)
--   patched LINE INSTRUCTION BYTECODE                (of the functions in which a start was tried)
--   flushes COUNT
-- A program of this folder is run with the folder as its argument, calls done() at its end, and
-- then sleeps in C, so that its state stays.
local util = require("jit.util")
local ffi = require("ffi")
ffi.cdef("unsigned sleep(unsigned)")
local funcinfo, funcbc, traceinfo = util.funcinfo, util.funcbc, util.traceinfo

local witness = { flushes = 0 }
local starts, aborts, functions = {}, {}, {}

local function observe(what, number, func, pc, other)
  if what == "start" then
    local info = funcinfo(func, pc)
    local key = info.linedefined .. "\t" .. pc
    -- No penalty is kept for traces that start at a return (RETM to RET1, in every version 73 to 76), which come from
    -- recursion, and none for a recording that is begun again at once ("retry recording", 6).
    local op = bit.band(funcbc(func, pc), 0xff)
    local kept = not other and not (op >= 73 and op <= 76)
    starts[number] = { line = info.currentline, pc = pc, parent = other, kept = kept, key = key }
    functions[info.linedefined .. "\t" .. tostring(info.source)] = func
  elseif what == "abort" then
    local start, reason = starts[number], other
    if start and start.kept and reason ~= 6 then
      local known = aborts[start.key] or { line = start.line, pc = start.pc, count = 0 }
      known.count, known.reason = known.count + 1, reason
      aborts[start.key] = known
    end
  elseif what == "flush" then
    witness.flushes = witness.flushes + 1
    aborts = {}
  end
end
jit.off(observe, true)

function witness.done()
  jit.attach(observe)
  jit.off(witness.done)
  local ok, vmdef = pcall(require, "jit.vmdef")
  -- Traces that were replaced are freed by the collector: before they are listed, and none of them later.
  collectgarbage()
  collectgarbage()
  collectgarbage("stop")
  for number = 1, 20000 do
    local info = traceinfo(number)
    if info then
      local start = starts[number]
      print("trace", number, info.link, info.linktype, start.line, start.pc, start.parent or 0)
    end
  end
  for _, start in pairs(aborts) do
    print("aborts", start.line, start.pc, start.count, tostring(start.reason))
  end
  for _, func in pairs(functions) do
    for pc = 0, funcinfo(func).bytecodes - 1 do
      local op = ok and bit.band(funcbc(func, pc), 0xff)
      local name = op and vmdef.bcnames:sub(op * 6 + 1, op * 6 + 6):gsub(" ", "") or ""
      if name:match("^I[FL]") or name == "IITERL" then
        print("patched", funcinfo(func, pc).currentline, pc, name)
      end
    end
  end
  if not ok then print("no_vmdef") end
  print("flushes", witness.flushes)
  print("ready")
  io.stdout:flush()
  ffi.C.sleep(60)
end

jit.attach(observe, "trace")
return witness
