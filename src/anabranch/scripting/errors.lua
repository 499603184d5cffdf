-- Errors: how those of the server's functions become values of Lua, and where in a script one happened.
--
-- Errors of the server's functions come as Python objects: whatever catches errors turns them into
-- text first, so no script ever gets hold of a Python object.

local host = ...

local error, find, getinfo, gsub, rawget, sub, tostring, type = error, string.find, debug.getinfo,
  string.gsub, rawget, string.sub, tostring, type

local describe = python.as_function(host.describe) -- called behind a function that made room

local function plain(err)
  if type(err) == "userdata" then
    local text, is_of_lua = describe(err)
    return is_of_lua and text or { err = text }
  end
  return err
end

local function caught(ok, err, ...)
  if ok then
    return true, err, ...
  end
  err = plain(err)
  if type(err) == "table" then
    local text = rawget(err, "err")
    if type(text) == "string" or type(text) == "number" then
      err = text
    end
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

-- The text of an error behind the place in the script, as Lua shows it.
local function placed(text)
  local source, line = locate()
  return source and sub(source, 2) .. ":" .. line .. ": " .. text or text
end

-- Raises an error of a library.
local function fail(text)
  error(placed(text), 0)
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

return { caught = caught, fail = fail, handler = handler, placed = placed, plain = plain }
