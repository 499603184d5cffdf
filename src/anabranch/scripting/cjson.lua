-- cjson: JSON for scripts, with the limits, the settings and the error texts of Lua CJSON 2.1, and
-- with arrays that stay arrays (Redis 8.4).

local null, fail, array_mt, getmetatable = ...

local byte, char, concat, find, floor, format, gsub, sub = string.byte, string.char, table.concat,
  string.find, math.floor, string.format, string.gsub, string.sub
local next, rawget, select, setmetatable, tonumber, tostring, type = next, rawget,
  select, setmetatable, tonumber, tostring, type

-- Settings ------------------------------------------------------------------------------------

local INTEGER_MAX = 2147483647

local function defaults()
  return {
    convert = false, ratio = 2, safe = 10, -- of sparse arrays
    encode_max_depth = 1000, decode_max_depth = 1000,
    encode_keep_buffer = true, -- a setting only: buffers are not ours
    encode_number_precision = 14, number = "%.14g",
    encode_invalid_numbers = false, decode_invalid_numbers = true,
    decode_array_with_array_mt = false,
  }
end

local settings -- of the call that is under way; nothing of a script runs in between

local function bad_argument(index, name, problem)
  fail("bad argument #" .. index .. " to '" .. name .. "' (" .. problem .. ")")
end

local function at_most(count, name, ...)
  if select("#", ...) > count then
    bad_argument(count + 1, name, "found too many arguments")
  end
end

-- A setting that is on or off, or one of the words that it has in addition.
local function switch(owner, key, index, name, value, word)
  if value ~= nil then
    if type(value) == "number" then
      value = tostring(value)
    end
    if type(value) == "boolean" then
      owner[key] = value
    elseif value == "on" or value == "off" then
      owner[key] = value == "on"
    elseif value == word then
      owner[key] = word
    elseif type(value) == "string" then
      bad_argument(index, name, "invalid option '" .. value .. "'")
    else
      bad_argument(index, name, "string expected, got " .. type(value))
    end
  end
  return owner[key]
end

local function whole(owner, key, index, name, value, lowest, highest)
  if value ~= nil then
    local number = type(value) ~= "boolean" and tonumber(value)
    if not number then
      bad_argument(index, name, "number expected, got " .. type(value))
    end
    number = number < 0 and -floor(-number) or floor(number)
    if not (number >= lowest and number <= highest) then
      bad_argument(1, name, "expected integer between " .. lowest .. " and " .. highest)
    end
    owner[key] = number
  end
  return owner[key]
end

-- Writing -------------------------------------------------------------------------------------

local ESCAPES = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t", ["\127"] = "\\u007f",
}
for code = 0, 31 do
  ESCAPES[char(code)] = ESCAPES[char(code)] or format("\\u%04x", code)
end

local function quoted(text)
  return '"' .. gsub(text, '[%z\1-\31"\\/\127]', ESCAPES) .. '"'
end

local function number(value)
  if value ~= value or value == 1 / 0 or value == -1 / 0 then
    local allowed = settings.encode_invalid_numbers
    if not allowed then
      fail("Cannot serialise number: must not be NaN or Inf")
    elseif allowed == "null" then
      return "null"
    elseif value ~= value then
      return "nan"
    end
  end
  return format(settings.number, value)
end

-- The length of an array, nil for what is an object.
local function array_length(list)
  local meta = getmetatable(list)
  if meta and (meta == array_mt or rawget(meta, "__is_cjson_array")) then
    return #list
  end
  local highest, count = 0, 0
  for key in next, list do
    if type(key) ~= "number" or key < 1 or floor(key) ~= key or key > INTEGER_MAX then
      return nil
    end
    count = count + 1
    if key > highest then
      highest = key
    end
  end
  if
    settings.ratio > 0
    and highest > count * settings.ratio
    and highest > settings.safe
  then
    if not settings.convert then
      fail("Cannot serialise table: excessively sparse array")
    end
    return nil
  end
  return count > 0 and highest or nil
end

local function write(value, out, level)
  local kind = type(value)
  if kind == "string" then
    out[#out + 1] = quoted(value)
  elseif kind == "number" then
    out[#out + 1] = number(value)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(value)
  elseif value == nil or value == null then
    out[#out + 1] = "null"
  elseif kind == "table" then
    if level > settings.encode_max_depth then
      fail("Cannot serialise, excessive nesting (" .. level .. ")")
    end
    local length = array_length(value)
    if length then
      out[#out + 1] = "["
      for index = 1, length do
        if index > 1 then
          out[#out + 1] = ","
        end
        write(rawget(value, index), out, level + 1)
      end
      out[#out + 1] = "]"
    else
      out[#out + 1] = "{"
      local first = true
      for key, inner in next, value do
        if not first then
          out[#out + 1] = ","
        end
        first = false
        if type(key) == "number" then
          out[#out + 1] = '"' .. number(key) .. '":'
        elseif type(key) == "string" then
          out[#out + 1] = quoted(key) .. ":"
        else
          fail("Cannot serialise " .. type(key) .. ": table key must be a number or string")
        end
        write(inner, out, level + 1)
      end
      out[#out + 1] = "}"
    end
  else
    fail("Cannot serialise " .. kind .. ": type not supported")
  end
end

-- Reading -------------------------------------------------------------------------------------

local PLAIN = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}
local MARKS = {
  ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END", ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END",
  [","] = "T_COMMA", [":"] = "T_COLON", [""] = "T_END", ["\0"] = "T_END",
}
local WORDS = { { "^true", true }, { "^false", false }, { "^null", null } }

-- What strtod() reads, the longest first; it also reads numbers that are not JSON.
local NUMBERS = {
  "^[+-]?0[xX]%x+%.?%x*[pP][+-]?%d+", "^[+-]?0[xX]%x+%.?%x*", "^[+-]?%d+%.?%d*[eE][+-]?%d+",
  "^[+-]?0[xX]%.%x+[pP][+-]?%d+", "^[+-]?0[xX]%.%x+",
  "^[+-]?%d+%.?%d*", "^[+-]?%.%d+[eE][+-]?%d+", "^[+-]?%.%d+",
  "^[+-]?[iI][nN][fF][iI][nN][iI][tT][yY]", "^[+-]?[iI][nN][fF]", "^[+-]?[nN][aA][nN]",
}
local INVALID_NUMBERS = { "^%+", "^-?0[xX%d]", "^-?[iI][nN][fF]", "^-?[nN][aA][nN]" }

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64,
    0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

local function skip(text, at)
  return find(text, "[^ \t\r\n]", at) or #text + 1
end

local function starts(text, patterns, at)
  for index = 1, #patterns do
    local _, stop = find(text, patterns[index], at)
    if stop then
      return stop
    end
  end
end

-- The character of an escape like \u00e4, and the position behind it; nil if it is none.
local function unescape(text, at)
  local code = find(text, "^%x%x%x%x", at + 2) and tonumber(sub(text, at + 2, at + 5), 16)
  local behind = at + 6
  if code and code >= 0xD800 and code < 0xE000 then
    local low = code < 0xDC00 and find(text, "^\\u[dD][c-fC-F]%x%x", behind)
      and tonumber(sub(text, behind + 2, behind + 5), 16)
    code = low and 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00
    behind = behind + 6
  end
  return code and utf8(code), behind
end

-- The string that begins here and the position behind it, or nil, what is wrong, and where.
local function string_at(text, at)
  local parts, from = {}, at + 1
  while true do
    local stop = find(text, '["\\%z]', from) or #text + 1
    local mark = byte(text, stop)
    local part = sub(text, from, stop - 1)
    if mark == 34 and from == at + 1 then
      return part, stop + 1
    end
    parts[#parts + 1] = part
    if mark == 34 then
      return concat(parts), stop + 1
    elseif mark ~= 92 then
      return nil, "unexpected end of string", stop
    end
    local letter = sub(text, stop + 1, stop + 1)
    local plain, behind = PLAIN[letter], stop + 2
    if letter == "u" then
      plain, behind = unescape(text, stop)
      if not plain then
        return nil, "invalid unicode escape code", stop
      end
    elseif not plain then
      return nil, "invalid escape code", stop
    end
    parts[#parts + 1], from = plain, behind
  end
end

-- The number that begins here and the position behind it; nil, or nil and what is wrong.
local function number_at(text, at)
  local _, last = find(text, "^-?[1-9]%d*", at)
  local after = last and byte(text, last + 1)
  if last and after ~= 46 and after ~= 69 and after ~= 101 then -- no ".", "E" or "e"
    return tonumber(sub(text, at, last)), last + 1
  end
  local is_sure = find(text, "^[%d-]", at)
  local is_invalid = starts(text, INVALID_NUMBERS, at)
  if settings.decode_invalid_numbers then
    if not (is_sure or is_invalid) then
      return nil
    end
  elseif not is_sure then
    return nil
  elseif is_invalid then
    return nil, "invalid number"
  end
  local stop = starts(text, NUMBERS, at)
  if not stop then
    return nil, "invalid number"
  end
  return tonumber(sub(text, at, stop)), stop + 1
end

-- Names what is here in place of something else.
local function expected(what, text, at)
  local mark = sub(text, at, at)
  local found = MARKS[mark]
  if mark == '"' then
    local value, problem, where = string_at(text, at)
    found = value and "T_STRING" or problem
    at = where or at
  elseif not found then
    local value, problem = number_at(text, at)
    found = value and "T_NUMBER" or problem
    for index = 1, found and 0 or #WORDS do
      if find(text, WORDS[index][1], at) then
        found = WORDS[index][2] == null and "T_NULL" or "T_BOOLEAN"
      end
    end
  end
  fail("Expected " .. what .. " but found " .. (found or "invalid token") .. " at character " .. at)
end

local read

local function deeper(level, at)
  if level > settings.decode_max_depth then
    fail("Found too many nested data structures (" .. level .. ") at character " .. at)
  end
end

local function read_array(text, at, level)
  deeper(level, at)
  local list, count = {}, 0
  if settings.decode_array_with_array_mt then
    setmetatable(list, array_mt)
  end
  at = skip(text, at + 1)
  if byte(text, at) == 93 then
    return list, at + 1
  end
  while true do
    count = count + 1
    list[count], at = read(text, at, level)
    at = skip(text, at)
    local mark = byte(text, at)
    if mark == 93 then
      return list, at + 1
    elseif mark ~= 44 then
      expected("comma or array end", text, at)
    end
    at = skip(text, at + 1)
  end
end

local function read_object(text, at, level)
  deeper(level, at)
  local object = {}
  at = skip(text, at + 1)
  if byte(text, at) == 125 then
    return object, at + 1
  end
  while true do
    local key, behind
    if byte(text, at) == 34 then
      key, behind = string_at(text, at)
    end
    if not key then
      expected("object key string", text, at)
    end
    at = skip(text, behind)
    if byte(text, at) ~= 58 then
      expected("colon", text, at)
    end
    object[key], at = read(text, skip(text, at + 1), level)
    at = skip(text, at)
    local mark = byte(text, at)
    if mark == 125 then
      return object, at + 1
    elseif mark ~= 44 then
      expected("comma or object end", text, at)
    end
    at = skip(text, at + 1)
  end
end

read = function(text, at, level)
  local mark = byte(text, at)
  if mark == 34 then
    local value, behind = string_at(text, at)
    if value then
      return value, behind
    end
  elseif mark == 123 then
    return read_object(text, at, level + 1)
  elseif mark == 91 then
    return read_array(text, at, level + 1)
  else
    local value, behind = number_at(text, at)
    if value then
      return value, behind
    end
    for index = 1, #WORDS do
      local _, stop = find(text, WORDS[index][1], at)
      if stop then
        return WORDS[index][2], stop + 1
      end
    end
  end
  return expected("value", text, at)
end

local function decoded(text)
  if type(text) == "number" then
    text = tostring(text)
  elseif type(text) ~= "string" then
    bad_argument(1, "decode", "string expected, got " .. type(text))
  end
  if #text >= 2 and find(text, "^.?%z") then
    fail("JSON parser does not support UTF-16 or UTF-32")
  end
  local value, at = read(text, skip(text, 1), 0)
  at = skip(text, at)
  if at <= #text and byte(text, at) ~= 0 then
    expected("the end", text, at)
  end
  return value
end

-- The library -----------------------------------------------------------------------------------

local function only(name, ...)
  if select("#", ...) ~= 1 then
    bad_argument(1, name, "expected 1 argument")
  end
  return (...)
end

-- A library with settings of its own; what ``own`` returns has them.
local library
library = function(own)
  local made = {
    _NAME = "cjson", _VERSION = "2.1.0", null = null,
    encode = function(...)
      settings = own()
      local out = {}
      write(only("encode", ...), out, 1)
      return concat(out)
    end,
    decode = function(...)
      settings = own()
      return (decoded(only("decode", ...)))
    end,
    encode_sparse_array = function(...)
      local name = "encode_sparse_array"
      at_most(3, name, ...)
      local convert, ratio, safe = ...
      return switch(own(), "convert", 1, name, convert),
        whole(own(), "ratio", 2, name, ratio, 0, INTEGER_MAX),
        (whole(own(), "safe", 3, name, safe, 0, INTEGER_MAX))
    end,
    encode_number_precision = function(...)
      local name = "encode_number_precision"
      at_most(1, name, ...)
      local digits = whole(own(), name, 1, name, (...), 1, 14)
      own().number = "%." .. digits .. "g"
      return digits
    end,
    new = function()
      local mine = defaults()
      return (library(function()
        return mine
      end))
    end,
  }
  for _, name in next, { "encode_max_depth", "decode_max_depth" } do
    made[name] = function(...)
      at_most(1, name, ...)
      return (whole(own(), name, 1, name, (...), 1, INTEGER_MAX))
    end
  end
  for _, name in next, {
    "encode_keep_buffer", "encode_invalid_numbers", "decode_invalid_numbers",
    "decode_array_with_array_mt",
  } do
    local word = name == "encode_invalid_numbers" and "null" or nil
    made[name] = function(...)
      at_most(1, name, ...)
      return (switch(own(), name, 1, name, (...), word))
    end
  end
  return made
end

-- Scripts share their settings, and so do functions, as in Redis.
local shared = { scripts = defaults(), functions = defaults() }
local kind = "scripts"

return library(function()
  return shared[kind]
end), {
  -- Chooses whose settings hold: "scripts" or "functions".
  use = function(of)
    kind = of
  end,
  -- Forgets what scripts have set.
  reset = function()
    shared.scripts = defaults()
  end,
}
