-- cjson: JSON for scripts, with the limits and the error texts of Lua CJSON 2.1.

local null, fail = ...

local byte, char, concat, find, floor, format, gsub, sub = string.byte, string.char, table.concat,
  string.find, math.floor, string.format, string.gsub, string.sub
local error, next, pairs, select, tonumber, tostring, type = error, next, pairs, select, tonumber,
  tostring, type

local DEPTH_MAX = 1000
local SPARSE_RATIO, SPARSE_SAFE = 2, 10

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
    fail("Cannot serialise number: must not be NaN or Inf")
  end
  return format("%.14g", value)
end

-- The length of an array, nil for what is an object.
local function array_length(list)
  local highest, count = 0, 0
  for key in next, list do
    if type(key) ~= "number" or key < 1 or floor(key) ~= key then
      return nil
    end
    count = count + 1
    if key > highest then
      highest = key
    end
  end
  if highest > count * SPARSE_RATIO and highest > SPARSE_SAFE then
    fail("Cannot serialise table: excessively sparse array")
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
    if level > DEPTH_MAX then
      fail("Cannot serialise, excessive nesting (" .. level .. ")")
    end
    local length = array_length(value)
    if length then
      out[#out + 1] = "["
      for index = 1, length do
        if index > 1 then
          out[#out + 1] = ","
        end
        write(value[index], out, level + 1)
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
          fail("Cannot serialise table: table key must be a number or string")
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
local WORDS = { ["true"] = true, ["false"] = false }

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

local function expected(what, text, at)
  local mark = sub(text, at, at)
  local found = "invalid token"
  if mark == "" then
    found, at = "T_END", #text + 1
  elseif mark == "]" then
    found = "T_ARR_END"
  elseif mark == "}" then
    found = "T_OBJ_END"
  elseif mark == "," then
    found = "T_COMMA"
  elseif mark == ":" then
    found = "T_COLON"
  elseif mark == "[" then
    found = "T_ARR_BEGIN"
  elseif mark == "{" then
    found = "T_OBJ_BEGIN"
  elseif mark == '"' then
    found = "T_STRING"
  elseif find(mark, "%d") then
    found = "T_NUMBER"
  elseif mark == "-" then
    found = find(text, "^[%dinIN]", at + 1) and "T_NUMBER" or "invalid number"
  end
  fail("Expected " .. what .. " but found " .. found .. " at character " .. at)
end

-- What strtod() reads, the longest first; it also reads numbers that are not JSON.
local NUMBERS = {
  "^-?0[xX]%x+", "^-?%d+%.?%d*[eE][+-]?%d+", "^-?%d+%.?%d*",
  "^-?[iI][nN][fF][iI][nN][iI][tT][yY]", "^-?[iI][nN][fF]", "^-?[nN][aA][nN]",
}

local function skip(text, at)
  return find(text, "[^ \t\r\n]", at) or #text + 1
end

local function read_string(text, at)
  local parts, from = {}, at + 1
  while true do
    local stop = find(text, '["\\%z\1-\31]', from)
    if not stop then
      expected("value", text, #text + 1)
    end
    local mark = byte(text, stop)
    parts[#parts + 1] = sub(text, from, stop - 1)
    if mark == 34 then
      return concat(parts), stop + 1
    elseif mark ~= 92 then
      fail("Expected value but found invalid token at character " .. stop)
    end
    local letter = sub(text, stop + 1, stop + 1)
    if letter == "u" then
      local code = tonumber(find(text, "^%x%x%x%x", stop + 2) and sub(text, stop + 2, stop + 5), 16)
      if not code then
        fail("Expected value but found invalid unicode escape code at character " .. stop)
      end
      from = stop + 6
      if code >= 0xD800 and code < 0xE000 then
        local low = find(text, "^\\u[dD][c-fC-F]%x%x", from) and code < 0xDC00
          and tonumber(sub(text, from + 2, from + 5), 16)
        if not low then
          fail("Expected value but found invalid unicode escape code at character " .. stop)
        end
        code = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00
        from = from + 6
      end
      parts[#parts + 1] = utf8(code)
    else
      if not PLAIN[letter] then
        fail("Expected value but found invalid escape code at character " .. stop)
      end
      parts[#parts + 1] = PLAIN[letter]
      from = stop + 2
    end
  end
end

local read

local function deeper(level, at)
  if level > DEPTH_MAX then
    fail("Found too many nested data structures (" .. level .. ") at character " .. at)
  end
end

local function read_array(text, at, level)
  deeper(level, at)
  local list, count = {}, 0
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
    if byte(text, at) ~= 34 then
      expected("object key string", text, at)
    end
    local key
    key, at = read_string(text, at)
    at = skip(text, at)
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
    return read_string(text, at)
  elseif mark == 123 then
    return read_object(text, at, level + 1)
  elseif mark == 91 then
    return read_array(text, at, level + 1)
  end
  for index = 1, #NUMBERS do
    local _, stop = find(text, NUMBERS[index], at)
    if stop then
      return tonumber(sub(text, at, stop)), stop + 1
    end
  end
  local _, stop = find(text, "^%l+", at)
  local word = stop and sub(text, at, stop)
  if word == "null" then
    return null, stop + 1
  elseif WORDS[word] ~= nil then
    return WORDS[word], stop + 1
  end
  return expected("value", text, at)
end

local function only(name, ...)
  if select("#", ...) ~= 1 then
    error("bad argument #1 to '" .. name .. "' (expected 1 argument)", 3)
  end
  return (...)
end

local function unchanged(...)
  return ...
end

return {
  _NAME = "cjson", _VERSION = "2.1.0", null = null,
  encode = function(...)
    local out = {}
    write(only("encode", ...), out, 1)
    return concat(out)
  end,
  decode = function(...)
    local text = only("decode", ...)
    if type(text) == "number" then
      text = tostring(text)
    elseif type(text) ~= "string" then
      error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
    end
    local value, at = read(text, skip(text, 1), 0)
    at = skip(text, at)
    if at <= #text then
      expected("the end", text, at)
    end
    return value
  end,
  decode_max_depth = unchanged, encode_max_depth = unchanged, encode_sparse_array = unchanged,
  encode_keep_buffer = unchanged, encode_number_precision = unchanged,
  encode_invalid_numbers = unchanged, decode_invalid_numbers = unchanged,
}
