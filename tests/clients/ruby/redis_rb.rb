# redis-rb as people use it: named checks, run one after the other, each on an empty server.
#
#     ruby redis_rb.rb PORT

require "redis"

CHECKS = {}
PATIENCE = 20

def check(name, &body)
  CHECKS[name] = body
end

def connected
  Redis.new(port: ARGV[0].to_i, id: "redis-rb", timeout: PATIENCE, reconnect_attempts: 0)
end

def equal(got, wanted)
  raise "got #{got.inspect}, wanted #{wanted.inspect}" unless got == wanted
end

def refused(begins)
  yield
rescue Redis::CommandError => problem
  equal(problem.message[0, begins.size], begins)
else
  raise "not refused: #{begins}"
end

def until_blocked(redis)
  deadline = Time.now + PATIENCE
  until redis.info("clients")["blocked_clients"] == "1"
    raise "no reader waits" if Time.now > deadline

    sleep 0.005
  end
end

check("produce and read ranges") do |redis|
  first = redis.xadd("s", { n: 1, unit: "°C" })
  last = redis.xadd("s", { n: 2 }, id: "99999999999999-1", maxlen: 2, approximate: true)
  equal(redis.xrange("s"), [[first, { "n" => "1", "unit" => "°C" }], [last, { "n" => "2" }]])
  equal(redis.xrevrange("s", count: 1), [[last, { "n" => "2" }]])
  equal(redis.xread("s", first), { "s" => [[last, { "n" => "2" }]] })
  equal(redis.xdel("s", first, "1-1"), 1)
  equal(redis.xtrim("s", 0), 1)
  equal(redis.xlen("s"), 0)
end

check("group round trip") do |redis|
  redis.xgroup(:create, "s", "g", "$", mkstream: true)
  (1..3).each { |n| redis.xadd("s", { n: n }, id: "#{n}-0") }
  read = redis.xreadgroup("g", "a", "s", ">", count: 2)
  equal(read, { "s" => [["1-0", { "n" => "1" }], ["2-0", { "n" => "2" }]] })
  equal(redis.xack("s", "g", "1-0", "9-9"), 1)
  equal(redis.xautoclaim("s", "g", "b", 0, "0")["entries"], [["2-0", { "n" => "2" }]])
  equal(redis.xpending("s", "g", "-", "+", 10).map { |each| each["consumer"] }, ["b"])
  equal(redis.xinfo(:groups, "s")[0]["lag"], 1)
  equal(redis.xgroup(:delconsumer, "s", "g", "b"), 1)
end

check("idempotent production by raw commands") do |redis|
  add = -> { redis.call("XADD", "s", "IDMP", "producer", "m1", "*", "n", "1") }
  equal(add.call, add.call)
  equal(redis.xlen("s"), 1)
end

check("a blocked read is served by another connection, or ends with nothing") do |redis|
  reader = Thread.new { connected.xread("s", "$", block: 0) }
  until_blocked(redis)
  redis.xadd("s", { task: 1 }, id: "5-5")
  equal(reader.value, { "s" => [["5-5", { "task" => "1" }]] })
  equal(redis.xread("s", "$", block: 20), {})
end

check("transactions and pipelines") do |redis|
  equal(redis.multi { |it| it.xadd("s", { f: "v" }, id: "1-1"); it.incr("n") }, ["1-1", 1])
  redis.watch("n") do
    connected.incr("n")
    equal(redis.multi { |it| it.incr("n") }, nil)
  end
  ids = redis.pipelined { |it| (1..1000).each { |n| it.xadd("p", { n: n }, id: "#{n}-0") } }
  equal(ids, (1..1000).map { |n| "#{n}-0" })
end

check("scripts") do |redis|
  source = "return redis.call('XADD', KEYS[1], ARGV[1], 'f', 'v')"
  equal(redis.eval(source, keys: ["s"], argv: ["7-7"]), "7-7")
  equal(redis.evalsha(redis.script(:load, source), keys: ["s"], argv: ["8-8"]), "8-8")
end

check("publish and subscribe") do |redis|
  heard = []
  connected.subscribe_with_timeout(PATIENCE, "news") do |on|
    on.subscribe { redis.publish("news", "hello") }
    on.message do |_, text|
      heard << text
      raise StopIteration
    end
  end
rescue StopIteration
  equal(heard, ["hello"])
end

check("errors are errors") do |redis|
  redis.set("string", "text")
  refused("WRONGTYPE ") { redis.xadd("string", { f: "v" }) }
  refused("NOGROUP ") { redis.xreadgroup("g", "c", "s", ">") }
  refused("ERR unknown command 'hset'") { redis.hset("h", "f", "v") }
  equal(redis.ping, "PONG")
end

CHECKS.each do |name, body|
  redis = connected
  redis.flushall
  body.call(redis)
  puts "ok: #{name}"
rescue StandardError => problem
  puts "failed: #{name}: #{problem.full_message(highlight: false)}"
end
