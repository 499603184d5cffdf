-- What scripts see: their globals, and the libraries of Lua and of Redis.
--
-- In place of every library there is an empty table with a metatable, so scripts can change none.

local host, errors, interruption, redis = ...
local as_function = python.as_function

local byte, concat, find, floor, format, gmatch, gsub, insert, match, rep, sub = string.byte,
  table.concat, string.find, math.floor, string.format, string.gmatch, string.gsub, table.insert,
  string.match, string.rep, string.sub
local error, getmetatable, loadstring, pcall, rawget, rawset, select, setfenv, setmetatable, tonumber,
  tostring, type = error, getmetatable, loadstring, pcall, rawget, rawset, select, setfenv,
  setmetatable, tonumber, tostring, type
local collect = collectgarbage
local caught, fail, plain = errors.caught, errors.fail, errors.plain

local PATTERN_MAX = 10000 -- longer ones overflow the stack of the process
local READONLY = "Attempt to modify a readonly table"

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

-- Libraries of Lua ---------------------------------------------------------------------------

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
    local position = tonumber((...)) or 0
    -- Lua converts it to 32 bits; from a negative one it would count up to the end of the list.
    if select("#", ...) == 2 and not (position >= 0 and position < 2147483648) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
    return insert(list, ...)
  end,
}

local math_library = {}
for name, value in pairs(math) do
  math_library[name] = value
end
math_library.mod = math.fmod
math_library.random = as_function(host.random)
math_library.randomseed = as_function(host.seed)

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
  xpcall = function(body, ...)
    if select("#", ...) == 0 then
      error("bad argument #2 to 'xpcall' (value expected)", 2)
    end
    local on_error = ...
    -- Not as the handler of Lua: nothing could interrupt that after an error of a hook.
    local function outcome(ok, err, ...)
      if ok then
        return true, err, ...
      end
      local handled, answer = pcall(on_error, plain(err))
      if not handled then
        answer = "error in error handling"
      end
      return false, answer
    end
    return outcome(pcall(body))
  end,
  collectgarbage = function(what)
    if what == "count" or what == "step" or what == "collect" or what == nil then
      return collect(what or "collect")
    end
    return 0
  end,
  coroutine = protect(interruption.coroutine_library), math = protect(math_library),
  string = protect(text_library), table = protect(table_library),
}

-- Libraries of Redis --------------------------------------------------------------------------

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
local array_mt = protect({ __is_cjson_array = true })
local cjson, json_settings = host.cjson(newproxy(), fail, array_mt, debug.getmetatable)
globals.cjson = protect(cjson)
globals.cmsgpack = protect(host.cmsgpack(struct.pack, struct.unpack, fail))

shown_globals = setmetatable({}, {
  __index = globals, __newindex = refuse, __metatable = false,
})
contents[shown_globals] = globals
globals._G = shown_globals
globals.os = protect({ clock = os.clock })
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
getmetatable("").__index = text_library
getmetatable("").__metatable = protect({ __index = globals.string })

-- Empties what a script may have put into the tables that it sees.
local function clean()
  for shown in next, contents do
    for key in next, shown do
      rawset(shown, key, nil)
    end
  end
end

return {
  clean = clean, compile = loadstring_safely, globals = globals, reset = json_settings.reset,
  use = json_settings.use,
}
