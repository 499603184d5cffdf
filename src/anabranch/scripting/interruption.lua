-- The hook that interrupts a script: every so many instructions the server may let others have a
-- turn, or end the script. Each coroutine needs the hook of its own.

local host, errors = ...

local create, error, getinfo, resume, sethook, type = coroutine.create, error, debug.getinfo,
  coroutine.resume, debug.sethook, type
local fail, plain, tick = errors.fail, errors.plain, python.as_function(host.tick)

local INSTRUCTIONS = 1000 -- between two looks at the clock, as long as they take little time
local COROUTINES_MAX = 100 -- inside of each other; each takes some of the stack of the process

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
    if type((...)) == "string" then
      fail((...))
    end
    error((...), 0)
  end
  return ...
end

local coroutine_library = {
  create = create_watched, resume = resume_with_limit, running = coroutine.running,
  status = coroutine.status, yield = coroutine.yield,
  wrap = function(body)
    local co = create_watched(body)
    return function(...)
      return passed_on(resume_with_limit(co, ...))
    end
  end,
}

local function begin()
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

return { begin = begin, coroutine_library = coroutine_library, runners = runners, stop = stop }
