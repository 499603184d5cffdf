// ioredis as people use it, in both protocols; replies have the same shape in either.

import assert from "node:assert/strict";
import { once } from "node:events";
import Redis from "ioredis";
import { check, port, protocol, run, until } from "./checks.mjs";

const blocked = (client, count = 1) =>
  until(
    async () => (await client.info("clients")).includes(`blocked_clients:${count}\r\n`),
    `${count} blocked`,
  );

// A flat array of names and values as an object.
const fields = (flat) =>
  Object.fromEntries(flat.flatMap((name, at) => (at % 2 ? [] : [[name, flat[at + 1]]])));

check("produce and read ranges", async (redis) => {
  const ids = [];
  for (let n = 0; n < 5; n++) ids.push(await redis.xadd("s", "*", "n", n, "unit", "°C"));
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(await redis.xlen("s"), 5);
  assert.equal(await redis.xadd("s", "MAXLEN", "=", 3, "99999999999999-1", "n", "last"), "99999999999999-1");
  assert.deepEqual(await redis.xrange("s", "-", "+"), [
    [ids[3], ["n", "3", "unit", "°C"]],
    [ids[4], ["n", "4", "unit", "°C"]],
    ["99999999999999-1", ["n", "last"]],
  ]);
  assert.deepEqual(await redis.xrevrange("s", "+", "-", "COUNT", 1), [["99999999999999-1", ["n", "last"]]]);
  assert.deepEqual(await redis.xrange("s", `(${ids[3]}`, ids[4]), [[ids[4], ["n", "4", "unit", "°C"]]]);
  assert.equal(await redis.xdel("s", ids[4], "1-1"), 1);
  assert.equal(await redis.xtrim("s", "MAXLEN", 0), 2);
  assert.equal(await redis.xadd("none", "NOMKSTREAM", "*", "a", "b"), null);
});

check("group round trip", async (redis) => {
  assert.equal(await redis.xgroup("CREATE", "s", "g", "$", "MKSTREAM"), "OK");
  for (let n = 1; n <= 4; n++) await redis.xadd("s", `${n}-0`, "n", n);
  const first = await redis.xreadgroup("GROUP", "g", "alice", "COUNT", 3, "BLOCK", 1000, "STREAMS", "s", ">");
  assert.deepEqual(first, [["s", [["1-0", ["n", "1"]], ["2-0", ["n", "2"]], ["3-0", ["n", "3"]]]]]);
  assert.deepEqual(await redis.xreadgroup("GROUP", "g", "bob", "STREAMS", "s", ">"), [["s", [["4-0", ["n", "4"]]]]]);
  assert.equal(await redis.xack("s", "g", "1-0", "9-9"), 1);
  assert.deepEqual(await redis.xpending("s", "g"), [3, "2-0", "4-0", [["alice", "2"], ["bob", "1"]]]);
  const pending = await redis.xpending("s", "g", "IDLE", 0, "-", "+", 10, "alice");
  assert.deepEqual(pending.map(([id, owner, , times]) => [id, owner, times]), [["2-0", "alice", 1], ["3-0", "alice", 1]]);
  assert.ok(pending.every(([, , idle]) => idle >= 0 && idle < 10_000));
  assert.deepEqual(await redis.xclaim("s", "g", "bob", 0, "2-0"), [["2-0", ["n", "2"]]]);
  assert.deepEqual(await redis.xclaim("s", "g", "bob", 3_600_000, "3-0"), []);
  assert.deepEqual(await redis.xautoclaim("s", "g", "carol", 0, "-", "COUNT", 2), [
    "4-0", [["2-0", ["n", "2"]], ["3-0", ["n", "3"]]], [],
  ]);
  assert.deepEqual(await redis.xautoclaim("s", "g", "carol", 0, "4-0", "JUSTID"), ["0-0", ["4-0"], []]);
  assert.deepEqual(await redis.xreadgroup("GROUP", "g", "carol", "STREAMS", "s", "0"), [
    ["s", [["2-0", ["n", "2"]], ["3-0", ["n", "3"]], ["4-0", ["n", "4"]]]],
  ]);
  assert.equal(await redis.xgroup("DELCONSUMER", "s", "g", "carol"), 3);
  assert.equal(await redis.xgroup("DESTROY", "s", "g"), 1);
});

check("information about streams, groups and consumers", async (redis) => {
  await redis.xadd("s", "1-1", "a", "b");
  await redis.xadd("s", "2-1", "a", "c");
  await redis.xgroup("CREATE", "s", "g", "0");
  await redis.xreadgroup("GROUP", "g", "alice", "COUNT", 1, "STREAMS", "s", ">");
  const stream = fields(await redis.xinfo("STREAM", "s"));
  assert.equal(stream.length, 2);
  assert.equal(stream["last-generated-id"], "2-1");
  assert.deepEqual(stream["first-entry"], ["1-1", ["a", "b"]]);
  const [group] = (await redis.xinfo("GROUPS", "s")).map(fields);
  assert.deepEqual(group, {
    name: "g", consumers: 1, pending: 1, "last-delivered-id": "1-1", "entries-read": 1, lag: 1,
  });
  const [consumer] = (await redis.xinfo("CONSUMERS", "s", "g")).map(fields);
  assert.equal(consumer.name, "alice");
  assert.equal(consumer.pending, 1);
  assert.ok(consumer.idle >= 0 && consumer.inactive >= 0);
  const full = fields(await redis.xinfo("STREAM", "s", "FULL"));
  assert.deepEqual(full.entries, [["1-1", ["a", "b"]], ["2-1", ["a", "c"]]]);
});

check("a blocked read is served by another connection", async (redis, another) => {
  const reader = await another();
  const reading = reader.xread("BLOCK", 0, "STREAMS", "s", "t", "$", "$");
  await blocked(redis);
  const id = await redis.xadd("t", "*", "news", "yes");
  assert.deepEqual(await reading, [["t", [[id, ["news", "yes"]]]]]);
  await redis.xgroup("CREATE", "s", "g", "$", "MKSTREAM");
  const working = reader.xreadgroup("GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">");
  await blocked(redis);
  await redis.xadd("s", "5-5", "task", "1");
  assert.deepEqual(await working, [["s", [["5-5", ["task", "1"]]]]]);
});

check("a blocked read ends with nothing", async (redis) => {
  const started = Date.now();
  assert.equal(await redis.xread("BLOCK", 60, "STREAMS", "s", "$"), null);
  assert.ok(Date.now() - started >= 59);
});

check("transactions and pipelines", async (redis, another) => {
  const done = await redis.multi().xadd("s", "1-1", "a", "b").xlen("s").xadd("s", "1-1", "a", "b").exec();
  assert.deepEqual(done.slice(0, 2), [[null, "1-1"], [null, 1]]);
  assert.match(done[2][0].message, /^ERR The ID specified in XADD is equal or smaller/);
  const other = await another();
  await redis.watch("s");
  await other.xadd("s", "2-1", "a", "b");
  assert.equal(await redis.multi().xlen("s").exec(), null);
  const pipeline = redis.pipeline();
  for (let n = 0; n < 1000; n++) pipeline.xadd("p", `${n + 1}-0`, "n", n);
  const replies = await pipeline.exec();
  assert.deepEqual(replies.map(([, id]) => id), Array.from({ length: 1000 }, (_, n) => `${n + 1}-0`));
  assert.equal(await redis.xlen("p"), 1000);
});

check("idempotent production by raw commands", async (redis) => {
  const once = await redis.call("XADD", "s", "IDMP", "producer", "order-1", "*", "a", "b");
  assert.equal(await redis.call("XADD", "s", "IDMP", "producer", "order-1", "*", "a", "b"), once);
  const auto = await redis.call("XADD", "s", "IDMPAUTO", "producer", "*", "x", "y");
  assert.equal(await redis.call("XADD", "s", "IDMPAUTO", "producer", "*", "x", "y"), auto);
  assert.equal(await redis.xlen("s"), 2);
  assert.equal(fields(await redis.xinfo("STREAM", "s"))["iids-duplicates"], 2);
});

check("errors are errors", async (redis) => {
  await redis.set("string", "text");
  await redis.xadd("s", "1-1", "a", "b");
  await redis.xgroup("CREATE", "s", "g", "0");
  await assert.rejects(redis.xadd("string", "*", "a", "b"), /^ReplyError: WRONGTYPE /);
  await assert.rejects(redis.xgroup("CREATE", "s", "g", "0"), /^ReplyError: BUSYGROUP /);
  await assert.rejects(redis.xreadgroup("GROUP", "no", "c", "STREAMS", "s", ">"), /^ReplyError: NOGROUP /);
  await assert.rejects(redis.call("HSET", "h", "f", "v"), /^ReplyError: ERR unknown command 'HSET'/);
  assert.equal(await redis.ping(), "PONG");
});

check("binary fields come back as they were", async (redis) => {
  const binary = Buffer.from([0, 255, 13, 10, 36, 49]);
  const id = await redis.xadd(Buffer.from([1, 0, 2]), "*", binary, binary);
  assert.deepEqual(await redis.xrangeBuffer(Buffer.from([1, 0, 2]), "-", "+"), [
    [Buffer.from(id), [binary, binary]],
  ]);
});

check("publish and subscribe", async (redis, another) => {
  const listener = await another();
  assert.equal(await listener.subscribe("news"), 1);
  assert.equal(await listener.psubscribe("new*"), 2);
  const heard = Promise.all([once(listener, "message"), once(listener, "pmessage")]);
  assert.equal(await redis.publish("news", "hello"), 2);
  assert.deepEqual(await heard, [["news", "hello"], ["new*", "news", "hello"]]);
  assert.equal(await listener.punsubscribe("new*"), 1);
  assert.equal(await listener.unsubscribe("news"), 0);
  assert.equal(await listener.ping(), "PONG");
});

check("scanning", async (redis) => {
  for (let n = 0; n < 50; n++) await redis.xadd(`s:${n}`, "*", "a", "b");
  await redis.set("other", "x");
  const found = new Set();
  for await (const keys of redis.scanStream({ match: "s:*", count: 7, type: "stream" })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 50);
});

await run(
  async () => {
    const redis = new Redis({ port, protocol, lazyConnect: true, connectionName: "ioredis", db: 3 });
    redis.on("error", (error) => { throw error; });
    await redis.connect();
    return redis;
  },
  (redis) => redis.quit(),
);
