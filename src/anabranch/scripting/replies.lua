-- Replies in RESP as values of Lua, and the other way round.

local byte, ceil, concat, error, find, floor, format, gsub, next, rawget, sub, tonumber, type =
  string.byte, math.ceil, table.concat, error, string.find, math.floor, string.format, string.gsub,
  next, rawget, string.sub, tonumber, type

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

return {
  decode = decode,
  -- The reply that a value stands for, to a client that speaks RESP3 or not. ``booleans``: the
  -- script has called redis.setresp(3).
  encode = function(value, resp3, booleans)
    local out = {}
    encode(value, resp3, booleans, out, 1)
    return concat(out)
  end,
}
