-- The world in which scripts live, and the functions by which the server runs them.
--
-- Runs once, with the functions of the server, which are Python objects, as its arguments. Scripts
-- see an empty table with a metatable in place of every library, so they can change none of them.
-- Errors of the server's functions come as Python objects: whatever catches errors turns them into
-- text first, so no script ever gets hold of a Python object.

local host = ...
local as_function = python.as_function

local byte, concat, find, format, rep, sub = string.byte, table.concat, string.find, string.format,
  string.rep, string.sub
local gsub, gmatch, insert, match = string.gsub, string.gmatch, table.insert, string.match
local ceil, floor = math.ceil, math.floor
local error, getmetatable, loadstring, pcall, rawget, rawset, select, setmetatable, tostring, type,
  xpcall = error, getmetatable, loadstring, pcall, rawget, rawset, select, setmetatable, tostring,
  type, xpcall
local collect = collectgarbage
local getinfo, setfenv, sethook = debug.getinfo, setfenv, debug.sethook
local create, resume, running, status, yield = coroutine.create, coroutine.resume,
  coroutine.running, coroutine.status, coroutine.yield

local INSTRUCTIONS = 1000 -- between two looks at the clock, as long as they take little time
local PATTERN_MAX = 10000 -- longer ones overflow the stack of the process
local COROUTINES_MAX = 100 -- inside of each other; each takes some of that stack
local READONLY = "Attempt to modify a readonly table"

local describe = as_function(host.describe) -- called by us alone, behind a function that made room
local tick = as_function(host.tick)

-- Errors --------------------------------------------------------------------------------------

local function plain(err)
  if type(err) == "userdata" then
    return { err = describe(err) }
  end
  return err
end

local function caught(ok, err, ...)
  if ok then
    return true, err, ...
  end
  err = plain(err)
  if type(err) == "table" and type(rawget(err, "err")) == "string" then
    err = rawget(err, "err")
  end
  return false, err
end

-- Where in a script we are: its source and the line. Our own functions have other sources.
local function locate()
  for level = 3, 40 do
    local info = getinfo(level, "Sl")
    if not info then
      break
    elseif sub(info.source, 1, 1) == "@" and info.currentline > 0 then
      return info.source, info.currentline
    end
  end
end

-- Raises an error of a library as Lua does, with the place in the script.
local function fail(text)
  local source, line = locate()
  error(source and sub(source, 2) .. ":" .. line .. ": " .. text or text, 0)
end

-- What the server gets of an error: its text, and the source and line where it happened.
local function handler(err)
  err = plain(err)
  local source, line = locate()
  local text
  if type(err) == "table" then
    text = rawget(err, "err")
    text = type(text) == "string" and text or "ERR unknown error"
  else
    text = tostring(err)
    if find(text, "^sandbox:%d+: ") then
      text = gsub(text, "^sandbox:%d+: ", source and sub(source, 2) .. ":" .. line .. ": " or "")
    end
    text = "ERR " .. text
  end
  return { text = text, source = source, line = line }
end

-- The clock -----------------------------------------------------------------------------------

local runners = {} -- the functions of ours that run scripts

local function hook()
  if runners[getinfo(2, "f").func] then -- the script has ended
    sethook()
    return
  end
  local stop, instructions = tick()
  if stop then
    sethook(hook, "", 1) -- from now on every instruction fails, so nothing can catch it
    error(stop, 0)
  elseif instructions then
    sethook(hook, "", instructions)
  end
end

-- Tables that nobody can change ---------------------------------------------------------------

local contents = setmetatable({}, { __mode = "k" })

local function refuse()
  error(READONLY, 2)
end

local function protect(real)
  local shown = setmetatable({}, { __index = real, __newindex = refuse, __metatable = false })
  contents[shown] = real
  return shown
end

-- Libraries -----------------------------------------------------------------------------------

local function limited(pattern)
  if #tostring(pattern) > PATTERN_MAX then
    error("pattern too long", 3)
  end
  return pattern
end

local text_library = {
  byte = byte, char = string.char, format = format, len = string.len, lower = string.lower,
  reverse = string.reverse, sub = sub, upper = string.upper,
  find = function(s, pattern, ...)
    return find(s, limited(pattern), ...)
  end,
  match = function(s, pattern, ...)
    return match(s, limited(pattern), ...)
  end,
  gmatch = function(s, pattern)
    return gmatch(s, limited(pattern))
  end,
  gsub = function(s, pattern, ...)
    return gsub(s, limited(pattern), ...)
  end,
  rep = function(s, count)
    if s == "" then
      return s
    end
    return rep(s, count)
  end,
}
text_library.gfind = text_library.gmatch

local table_library = {
  concat = concat, foreach = table.foreach, foreachi = table.foreachi, getn = table.getn,
  maxn = table.maxn, remove = table.remove, setn = table.setn, sort = table.sort,
  insert = function(list, ...)
    local position = ...
    if select("#", ...) == 2 and (tonumber(position) or 0) < 0 then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
    return insert(list, ...)
  end,
}

local depth = 0
local current -- the coroutine that runs, nil outside of all

local function resume_with_limit(co, ...)
  if depth >= COROUTINES_MAX then
    return false, "C stack overflow"
  end
  local before = current
  depth, current = depth + 1, co
  local function came_back(ok, err, ...)
    depth, current = depth - 1, before
    if ok then
      return true, err, ...
    end
    return false, plain(err)
  end
  return came_back(resume(co, ...))
end

local function create_watched(body)
  local co = create(body)
  sethook(co, hook, "", INSTRUCTIONS)
  return co
end

local function passed_on(ok, ...)
  if not ok then
    error((...), 0)
  end
  return ...
end

local coroutine_library = {
  create = create_watched, resume = resume_with_limit, running = running, status = status,
  yield = yield,
  wrap = function(body)
    local co = create_watched(body)
    return function(...)
      return passed_on(resume_with_limit(co, ...))
    end
  end,
}

local math_library = {}
for name, value in pairs(math) do
  math_library[name] = value
end
math_library.mod = math.fmod
local chance = as_function(host.chance)
math_library.randomseed = as_function(host.seed)
math_library.random = function(...)
  local count = select("#", ...)
  local low, high = 1, ...
  if count == 0 then
    return chance()
  elseif count == 2 then
    low, high = ...
  elseif count > 2 then
    error("wrong number of arguments", 2)
  end
  low, high = tonumber(low), tonumber(high)
  if not low or not high then
    error("bad argument #1 to 'random' (number expected)", 2)
  elseif low > high then
    error("bad argument #" .. count .. " to 'random' (interval is empty)", 2)
  end
  return floor(chance() * (high - low + 1)) + low
end

local shown_globals -- what scripts see as _G

local function loadstring_safely(text, name)
  if type(text) == "string" and byte(text, 1) == 27 then
    return nil, "bytecode is not loaded"
  end
  local chunk, problem = loadstring(text, name)
  if not chunk then
    return nil, problem
  end
  return setfenv(chunk, shown_globals)
end

local function load_safely(reader, name)
  if type(reader) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ")", 2)
  end
  local parts = {}
  while true do
    local part = reader()
    if part == nil or part == "" then
      break
    end
    parts[#parts + 1] = part
  end
  return loadstring_safely(concat(parts), name or "=(load)")
end

local function rawset_safely(target, key, value)
  if contents[target] then
    error(READONLY, 0)
  end
  return rawset(target, key, value)
end

local globals = {
  _VERSION = _VERSION, assert = assert, error = error, gcinfo = gcinfo, ipairs = ipairs,
  next = next, pairs = pairs, rawequal = rawequal, select = select, tonumber = tonumber,
  tostring = tostring, type = type, unpack = unpack,
  getmetatable = getmetatable, setmetatable = setmetatable,
  load = load_safely, loadstring = loadstring_safely, rawset = rawset_safely,
  rawget = function(target, key)
    return rawget(contents[target] or target, key)
  end,
  pcall = function(...)
    return caught(pcall(...))
  end,
  xpcall = function(body, on_error)
    -- Not as the handler of Lua: nothing could interrupt that after an error of a hook.
    local function outcome(ok, err, ...)
      if ok then
        return true, err, ...
      end
      return false, on_error(plain(err))
    end
    return outcome(pcall(body))
  end,
  collectgarbage = function(what)
    if what == "count" or what == "step" or what == "collect" or what == nil then
      return collect(what or "collect")
    end
    return 0
  end,
  coroutine = protect(coroutine_library), math = protect(math_library),
  string = protect(text_library), table = protect(table_library),
}

-- redis.* -------------------------------------------------------------------------------------

local call_command, try_command = as_function(host.call), as_function(host.pcall)
local redis = {
  REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  call = call_command, pcall = try_command,
  sha1hex = as_function(host.sha1hex),
  log = as_function(host.log),
  setresp = as_function(host.setresp),
  acl_check_cmd = as_function(host.acl_check_cmd),
  set_repl = as_function(host.set_repl),
  replicate_commands = function()
    return true
  end,
  breakpoint = function()
    return false
  end,
  debug = function() end,
  error_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { err = sub(text, 1, 1) == "-" and sub(text, 2) or text }
  end,
  status_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
  end,
}
globals.redis = protect(redis)

-- Functions of Python look like those of Lua: nobody can look into them.
local function library(functions)
  local made = {}
  for name, body in pairs(functions) do
    made[name] = as_function(body)
  end
  return made
end

local struct = library(host.struct)
globals.bit = protect(library(host.bit))
globals.struct = protect(struct)
globals.cjson = protect(host.cjson(newproxy(), fail))
globals.cmsgpack = protect(host.cmsgpack(struct.pack, struct.unpack, fail))

shown_globals = setmetatable({}, {
  __index = globals, __newindex = refuse, __metatable = false,
})
contents[shown_globals] = globals
globals._G = shown_globals
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
getmetatable("").__index = text_library
getmetatable("").__metatable = protect({ __index = globals.string })

-- Replies -------------------------------------------------------------------------------------

local DEPTH_MAX = 150

-- The first reply in a text, from a position on: as a value of Lua, and the position behind it.
local function decode(data, at)
  local mark = byte(data, at)
  local last = find(data, "\r", at, true)
  local head = sub(data, at + 1, last - 1)
  local behind = last + 2
  if mark == 36 then -- $
    local size = tonumber(head)
    if size < 0 then
      return false, behind
    end
    return sub(data, behind, behind + size - 1), behind + size + 2
  elseif mark == 58 then -- :
    return tonumber(head), behind
  elseif mark == 42 or mark == 62 then -- * and >
    local size = tonumber(head)
    if size < 0 then
      return false, behind
    end
    local list = {}
    for index = 1, size do
      list[index], behind = decode(data, behind)
    end
    return list, behind
  elseif mark == 43 then -- +
    return { ok = head }, behind
  elseif mark == 45 then -- -
    return { err = head }, behind
  elseif mark == 95 then -- _
    return nil, behind
  elseif mark == 35 then -- #
    return head == "t", behind
  elseif mark == 44 then -- ,
    local number = tonumber(head) or (head == "-inf" and -1 / 0) or (head == "inf" and 1 / 0)
    return { double = number or 0 / 0 }, behind
  elseif mark == 40 then -- (
    return { big_number = head }, behind
  elseif mark == 61 then -- =
    local size = tonumber(head)
    local text = sub(data, behind, behind + size - 1)
    return { verbatim_string = { format = sub(text, 1, 3), string = sub(text, 5) } },
      behind + size + 2
  elseif mark == 37 or mark == 126 then -- % and ~
    local inner = {}
    for _ = 1, tonumber(head) do
      local key, value
      key, behind = decode(data, behind)
      if mark == 37 then
        value, behind = decode(data, behind)
      else
        value = true
      end
      if key ~= nil then
        inner[key] = value
      end
    end
    return mark == 37 and { map = inner } or { set = inner }, behind
  end
  error("no such reply", 0)
end

local function shown_double(number)
  if number ~= number then
    return "nan"
  elseif number == 1 / 0 then
    return "inf"
  elseif number == -1 / 0 then
    return "-inf"
  end
  for digits = 15, 17 do
    local text = format("%." .. digits .. "g", number)
    if tonumber(text) == number then
      return text
    end
  end
end

local function shown_integer(number)
  if number ~= number or number >= 2 ^ 63 or number < -2 ^ 63 then
    return "-9223372036854775808"
  end
  return format("%d", number < 0 and ceil(number) or floor(number))
end

local function one_line(text)
  return (gsub(text, "[\r\n]", " "))
end

-- Puts the reply that a value of Lua stands for behind the pieces of ``out``.
local function encode(value, resp3, booleans, out, level)
  local kind = type(value)
  if kind == "string" then
    out[#out + 1] = "$" .. #value .. "\r\n" .. value .. "\r\n"
  elseif kind == "number" then
    out[#out + 1] = ":" .. shown_integer(value) .. "\r\n"
  elseif kind == "boolean" then
    if booleans and resp3 then
      out[#out + 1] = value and "#t\r\n" or "#f\r\n"
    elseif value or booleans then
      out[#out + 1] = value and ":1\r\n" or ":0\r\n"
    else
      out[#out + 1] = resp3 and "_\r\n" or "$-1\r\n"
    end
  elseif kind == "table" then
    if level > DEPTH_MAX then
      error({ err = "ERR reached lua stack limit" })
    end
    local field = rawget(value, "err")
    if type(field) == "string" then
      out[#out + 1] = "-" .. one_line(field) .. "\r\n"
      return
    end
    field = rawget(value, "ok")
    if type(field) == "string" then
      out[#out + 1] = "+" .. one_line(field) .. "\r\n"
      return
    end
    field = rawget(value, "double")
    if type(field) == "number" then
      local text = shown_double(field)
      out[#out + 1] = resp3 and "," .. text .. "\r\n" or "$" .. #text .. "\r\n" .. text .. "\r\n"
      return
    end
    field = rawget(value, "map")
    if type(field) == "table" then
      local place, count = #out + 1, 0
      out[place] = ""
      for key, inner in next, field do
        encode(key, resp3, booleans, out, level + 1)
        encode(inner, resp3, booleans, out, level + 1)
        count = count + 1
      end
      out[place] = (resp3 and "%" .. count or "*" .. 2 * count) .. "\r\n"
      return
    end
    field = rawget(value, "set")
    if type(field) == "table" then
      local place, count = #out + 1, 0
      out[place] = ""
      for key in next, field do
        encode(key, resp3, booleans, out, level + 1)
        count = count + 1
      end
      out[place] = (resp3 and "~" or "*") .. count .. "\r\n"
      return
    end
    field = rawget(value, "big_number")
    if type(field) == "string" then
      local text = one_line(field)
      out[#out + 1] = resp3 and "(" .. text .. "\r\n" or "$" .. #text .. "\r\n" .. text .. "\r\n"
      return
    end
    field = rawget(value, "verbatim_string")
    if type(field) == "table" then
      local text, kind_of = rawget(field, "string"), rawget(field, "format")
      if type(text) == "string" and type(kind_of) == "string" then
        kind_of = sub(kind_of .. "   ", 1, 3)
        out[#out + 1] = resp3
            and "=" .. #text + 4 .. "\r\n" .. kind_of .. ":" .. text .. "\r\n"
          or "$" .. #text .. "\r\n" .. text .. "\r\n"
        return
      end
    end
    local place, count = #out + 1, 0
    out[place] = ""
    while true do
      local inner = rawget(value, count + 1)
      if inner == nil then
        break
      end
      encode(inner, resp3, booleans, out, level + 1)
      count = count + 1
    end
    out[place] = "*" .. count .. "\r\n"
  else
    out[#out + 1] = resp3 and "_\r\n" or "$-1\r\n"
  end
end

-- Running -------------------------------------------------------------------------------------

local speaks_resp3 = false -- the script, since it called redis.setresp(3)

local function set_protocol(version)
  speaks_resp3 = version == 3
end

local function begin()
  speaks_resp3 = false
  depth, current = 0, nil
  sethook(hook, "", INSTRUCTIONS)
end

-- Has the script that runs end at its next instruction.
local function stop()
  sethook(hook, "", 1)
  if current then
    sethook(current, hook, "", 1)
  end
end

local function finish()
  sethook()
  globals.KEYS, globals.ARGV = nil, nil
  for shown in next, contents do
    for key in next, shown do
      rawset(shown, key, nil)
    end
  end
end

local function answer(resp3, ok, value)
  if ok then
    local out = {}
    local done, problem = xpcall(function()
      encode(value, resp3, speaks_resp3, out, 1)
      return concat(out)
    end, handler)
    finish()
    if done then
      return problem
    end
    value = problem
  else
    finish()
  end
  if type(value) ~= "table" then
    value = { text = "ERR " .. tostring(plain(value)) }
  end
  return nil, value.text, value.source, value.line
end

-- Runs a script: its reply, or nil and what is known of an error.
local function run(script, keys, argv, resp3)
  begin()
  globals.KEYS, globals.ARGV = keys, argv
  return answer(resp3, xpcall(script, handler))
end

-- Runs a registered function in the same way.
local function call(body, keys, argv, resp3)
  begin()
  globals.KEYS, globals.ARGV = nil, nil
  return answer(resp3, xpcall(function()
    return (body(keys, argv))
  end, handler))
end

runners[answer], runners[run], runners[call] = true, true, true

-- Runs the code of a library, which registers functions: nil, or an error in the same way.
local function load_library(body, register)
  begin()
  globals.KEYS, globals.ARGV = nil, nil
  redis.call, redis.pcall, redis.register_function = nil, nil, as_function(register)
  local ok, problem = xpcall(body, handler)
  redis.call, redis.pcall, redis.register_function = call_command, try_command, nil
  finish()
  if not ok then
    if type(problem) ~= "table" then
      problem = { text = "ERR " .. tostring(plain(problem)) }
    end
    return problem.text, problem.source, problem.line
  end
end
runners[load_library] = true
return {
  call = call, collect = collect, compile = loadstring_safely, decode = decode,
  load_library = load_library, run = run, set_protocol = set_protocol, stop = stop,
}
