-- cmsgpack: MessagePack for scripts.

local pack, unpack_bytes, fail = ...

local byte, concat, format, sub = string.byte, table.concat, string.format, string.sub
local floor, ipairs, modf, next, select, tonumber, tostring, type = math.floor, ipairs,
  math.modf, next, select, tonumber, tostring, type
local unpack = unpack

local DEPTH_MAX = 16

local function write_integer(value, out)
  local form, mark
  if value >= 0 then
    if value < 128 then
      form = "B"
    elseif value < 256 then
      form, mark = "B", 0xcc
    elseif value < 65536 then
      form, mark = ">H", 0xcd
    elseif value < 4294967296 then
      form, mark = ">I4", 0xce
    else
      form, mark = ">I8", 0xcf
    end
  elseif value >= -32 then
    form = "b"
  elseif value >= -128 then
    form, mark = "b", 0xd0
  elseif value >= -32768 then
    form, mark = ">h", 0xd1
  elseif value >= -2147483648 then
    form, mark = ">i4", 0xd2
  else
    form, mark = ">i8", 0xd3
  end
  out[#out + 1] = (mark and pack("B", mark) or "") .. pack(form, value)
end

local function header(count, fixed, fixed_max, short, long, out)
  if count <= fixed_max then
    out[#out + 1] = pack("B", fixed + count)
  elseif count < 65536 then
    out[#out + 1] = pack(">BH", short, count)
  else
    out[#out + 1] = pack(">BI4", long, count)
  end
end

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
  return highest == count and count or nil
end

local function write(value, out, level)
  local kind = type(value)
  if kind == "string" then
    if #value > 31 and #value < 256 then
      out[#out + 1] = pack("BB", 0xd9, #value)
    else
      header(#value, 0xa0, 31, 0xda, 0xdb, out)
    end
    out[#out + 1] = value
  elseif kind == "number" then
    if floor(value) == value and value >= -2 ^ 63 and value < 2 ^ 63 then
      write_integer(value, out)
    elseif unpack_bytes(">f", pack(">f", value)) == value then
      out[#out + 1] = pack("B", 0xca) .. pack(">f", value)
    else
      out[#out + 1] = pack("B", 0xcb) .. pack(">d", value)
    end
  elseif kind == "boolean" then
    out[#out + 1] = pack("B", value and 0xc3 or 0xc2)
  elseif kind == "table" and level <= DEPTH_MAX then
    local length = array_length(value)
    if length then
      header(length, 0x90, 15, 0xdc, 0xdd, out)
      for _, inner in ipairs(value) do
        write(inner, out, level + 1)
      end
    else
      local count = 0
      for _ in next, value do
        count = count + 1
      end
      header(count, 0x80, 15, 0xde, 0xdf, out)
      for key, inner in next, value do
        write(key, out, level + 1)
        write(inner, out, level + 1)
      end
    end
  else
    out[#out + 1] = pack("B", 0xc0)
  end
end

local NUMBERS = {
  [0xca] = ">f", [0xcb] = ">d", [0xcc] = "B", [0xcd] = ">H", [0xce] = ">I4", [0xcf] = ">i8",
  [0xd0] = "b", [0xd1] = ">h", [0xd2] = ">i4", [0xd3] = ">i8",
}
local LENGTHS = {
  [0xd9] = { "B", "text" }, [0xda] = { ">H", "text" }, [0xdb] = { ">I4", "text" },
  [0xdc] = { ">H", "array" }, [0xdd] = { ">I4", "array" },
  [0xde] = { ">H", "map" }, [0xdf] = { ">I4", "map" },
}

local SIZES = { B = 1, b = 1, [">H"] = 2, [">h"] = 2, [">f"] = 4, [">I4"] = 4, [">i4"] = 4 }

local function unpack_whole(form, data, at)
  if at + (SIZES[form] or 8) - 1 > #data then
    fail("Missing bytes in input.")
  end
  return unpack_bytes(form, data, at)
end

local read

local function read_many(data, at, kind, count, level)
  if kind == "text" then
    if at + count - 1 > #data then
      fail("Missing bytes in input.")
    end
    return sub(data, at, at + count - 1), at + count
  end
  local made = {}
  for index = 1, count do
    local key = index
    if kind == "map" then
      key, at = read(data, at, level + 1)
    end
    local value
    value, at = read(data, at, level + 1)
    if key ~= nil then
      made[key] = value
    end
  end
  return made, at
end

read = function(data, at, level)
  local mark = byte(data, at)
  if not mark then
    fail("Missing bytes in input.")
  elseif level > 100 then
    fail("Bad data format in input.")
  elseif mark < 0x80 then
    return mark, at + 1
  elseif mark < 0x90 then
    return read_many(data, at + 1, "map", mark - 0x80, level)
  elseif mark < 0xa0 then
    return read_many(data, at + 1, "array", mark - 0x90, level)
  elseif mark < 0xc0 then
    return read_many(data, at + 1, "text", mark - 0xa0, level)
  elseif mark == 0xc0 then
    return nil, at + 1
  elseif mark == 0xc2 or mark == 0xc3 then
    return mark == 0xc3, at + 1
  elseif mark >= 0xe0 then
    return mark - 0x100, at + 1
  elseif NUMBERS[mark] then
    return unpack_whole(NUMBERS[mark], data, at + 1)
  elseif LENGTHS[mark] then
    local form, kind = unpack(LENGTHS[mark])
    local count, behind = unpack_whole(form, data, at + 1)
    return read_many(data, behind, kind, count, level)
  end
  fail("Bad data format in input.")
end

local function whole(value, index, name)
  local number = tonumber(value)
  if not number then
    local kind = value == nil and "no value" or type(value)
    fail("bad argument #" .. index .. " to '" .. name .. "' (number expected, got " .. kind .. ")")
  end
  return (modf(number))
end

local function unpack_some(name, data, limit, from)
  if type(data) == "number" then
    data = tostring(data)
  elseif type(data) ~= "string" then
    local kind = data == nil and "no value" or type(data)
    fail("bad argument #1 to '" .. name .. "' (string expected, got " .. kind .. ")")
  end
  if limit < 0 or from < 0 then
    fail(format("Invalid request to unpack with offset of %d and limit of %d.", from, #data))
  elseif from > #data then
    fail(format("Start offset %d greater than input length %d.", from, #data))
  end
  local all = limit == 0 and from == 0
  local values, count, at = {}, 0, from + 1
  while at <= #data and (all or count < limit) do
    count = count + 1
    values[count], at = read(data, at, 1)
  end
  if all then
    return unpack(values, 1, count)
  end
  return at > #data and -1 or at - 1, unpack(values, 1, count)
end

return {
  _NAME = "cmsgpack", _VERSION = "lua-cmsgpack 0.4.0",
  _COPYRIGHT = "", _DESCRIPTION = "MessagePack for Lua",
  pack = function(...)
    if select("#", ...) == 0 then
      fail("bad argument #0 to 'pack' (MessagePack pack needs input.)")
    end
    local out = {}
    for index = 1, select("#", ...) do
      write((select(index, ...)), out, 1)
    end
    return concat(out)
  end,
  unpack = function(data)
    return unpack_some("unpack", data, 0, 0)
  end,
  unpack_one = function(data, from)
    return unpack_some("unpack_one", data, 1, whole(from or 0, 2, "unpack_one"))
  end,
  unpack_limit = function(data, limit, from)
    limit = whole(limit, 2, "unpack_limit")
    return unpack_some("unpack_limit", data, limit, whole(from or 0, 3, "unpack_limit"))
  end,
}
