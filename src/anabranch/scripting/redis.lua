-- The library ``redis`` of scripts.

local host = ...
local as_function = python.as_function
local find, match, select, type = string.find, string.match, select, type

return {
  REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  call = as_function(host.call), pcall = as_function(host.pcall),
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
    text = match(text, "^%-?[\r\n]*(.-)[\r\n]*$")
    return { err = find(text, " ", 1, true) and text or "ERR " .. text }
  end,
  status_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
  end,
}
