-- The functions by which the server runs scripts, in a world that the other files make.
--
-- Runs once, with the functions of the server, which are Python objects, as its arguments.

local host = ...
local parts = host.parts

local collect, error, pcall, tostring, type, xpcall = collectgarbage, error, pcall, tostring, type,
  xpcall
local as_function, sethook = python.as_function, debug.sethook

local errors = parts.errors(host)
local interruption = parts.interruption(host, errors)
local redis = parts.redis(host)
local replies = parts.replies()
local libraries = parts.libraries(host, errors, interruption, redis)
local globals, handler, plain = libraries.globals, errors.handler, errors.plain
local call_command, try_command = redis.call, redis.pcall

local speaks_resp3 = false -- the script, since it called redis.setresp(3)

local function set_protocol(version)
  speaks_resp3 = version == 3
end

local function begin(kind, keys, argv)
  speaks_resp3 = false
  globals.KEYS, globals.ARGV = keys, argv
  libraries.use(kind)
  interruption.begin()
end

local function finish(ok, problem)
  sethook()
  globals.KEYS, globals.ARGV = nil, nil
  libraries.clean()
  -- No handler is called without memory. What the server copies into this world for the next script
  -- must find some, even if the system has none left: an error there ends the process.
  if not ok and type(problem) == "string" then
    collect()
  end
end

-- What the server gets of an error: text, source and line. Without memory there is only the text.
local function described(problem)
  if type(problem) ~= "table" then
    problem = { text = "ERR " .. tostring(plain(problem)) }
  end
  return problem.text, problem.source, problem.line
end

local encode = replies.encode

local function answer(resp3, ok, value)
  if ok then
    ok, value = pcall(encode, value, resp3, speaks_resp3)
    if not ok then
      value = handler(value)
    end
  end
  finish(ok, value)
  if ok then
    return value
  end
  return nil, described(value)
end

-- Runs a script: its reply, or nil and what is known of an error.
local function run(script, keys, argv, resp3)
  begin("scripts", keys, argv)
  return answer(resp3, xpcall(script, handler))
end

-- Runs a registered function in the same way.
local function call(body, keys, argv, resp3)
  begin("functions")
  return answer(resp3, xpcall(function()
    return (body(keys, argv))
  end, handler))
end

-- Runs the code of a library, which registers functions: nil, or an error in the same way.
local function load_library(body, register)
  begin("functions")
  redis.call, redis.pcall, redis.register_function = nil, nil, as_function(register)
  local ok, problem = xpcall(body, handler)
  redis.call, redis.pcall, redis.register_function = call_command, try_command, nil
  finish(ok, problem)
  if not ok then
    return described(problem)
  end
end

for _, runner in next, { answer, run, call, load_library } do
  interruption.runners[runner] = true
end

return {
  call = call, collect = collect, compile = libraries.compile, decode = replies.decode,
  load_library = load_library, run = run, placed = errors.placed, reset = libraries.reset,
  set_protocol = set_protocol, stop = interruption.stop,
}
