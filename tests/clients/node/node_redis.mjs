// node-redis as people use it, in both protocols; replies have the same shape in either.

import assert from "node:assert/strict";
import { createClient, createClientPool } from "redis";
import { check, port, protocol, run, until } from "./checks.mjs";

const blocked = (client, count = 1) =>
  until(
    async () => (await client.info("clients")).includes(`blocked_clients:${count}\r\n`),
    `${count} blocked`,
  );

// The client makes objects without a prototype.
const plain = (value) => JSON.parse(JSON.stringify(value));

const entry = (id, message) => ({ id, message });

check("produce and read ranges", async (client) => {
  const ids = [];
  for (let n = 0; n < 5; n++) ids.push(await client.xAdd("s", "*", { n: `${n}`, unit: "°C" }));
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(await client.xLen("s"), 5);
  const trimmed = { TRIM: { strategy: "MAXLEN", strategyModifier: "=", threshold: 3 } };
  assert.equal(await client.xAdd("s", "99999999999999-1", { n: "last" }, trimmed), "99999999999999-1");
  assert.deepEqual(plain(await client.xRange("s", "-", "+")), [
    entry(ids[3], { n: "3", unit: "°C" }),
    entry(ids[4], { n: "4", unit: "°C" }),
    entry("99999999999999-1", { n: "last" }),
  ]);
  assert.deepEqual(plain(await client.xRevRange("s", "+", "-", { COUNT: 1 })), [entry("99999999999999-1", { n: "last" })]);
  assert.equal(await client.xDel("s", [ids[4], "1-1"]), 1);
  assert.equal(await client.xTrim("s", "MAXLEN", 0), 2);
  assert.equal(await client.xAddNoMkStream("none", "*", { a: "b" }), null);
});

check("group round trip", async (client) => {
  assert.equal(await client.xGroupCreate("s", "g", "$", { MKSTREAM: true }), "OK");
  for (let n = 1; n <= 4; n++) await client.xAdd("s", `${n}-0`, { n: `${n}` });
  const next = { key: "s", id: ">" };
  assert.deepEqual(plain(await client.xReadGroup("g", "alice", next, { COUNT: 3, BLOCK: 1000 })), [
    { name: "s", messages: [entry("1-0", { n: "1" }), entry("2-0", { n: "2" }), entry("3-0", { n: "3" })] },
  ]);
  assert.deepEqual(plain(await client.xReadGroup("g", "bob", next)), [
    { name: "s", messages: [entry("4-0", { n: "4" })] },
  ]);
  assert.equal(await client.xAck("s", "g", ["1-0", "9-9"]), 1);
  assert.deepEqual(plain(await client.xPending("s", "g")), {
    pending: 3, firstId: "2-0", lastId: "4-0",
    consumers: [{ name: "alice", deliveriesCounter: 2 }, { name: "bob", deliveriesCounter: 1 }],
  });
  const pending = await client.xPendingRange("s", "g", "-", "+", 10, { consumer: "alice" });
  assert.deepEqual(pending.map((one) => [one.id, one.consumer, one.deliveriesCounter]), [
    ["2-0", "alice", 1], ["3-0", "alice", 1],
  ]);
  assert.deepEqual(plain(await client.xClaim("s", "g", "bob", 0, "2-0")), [entry("2-0", { n: "2" })]);
  assert.deepEqual(await client.xClaim("s", "g", "bob", 3_600_000, "3-0"), []);
  assert.deepEqual(plain(await client.xAutoClaim("s", "g", "carol", 0, "-", { COUNT: 2 })), {
    nextId: "4-0", messages: [entry("2-0", { n: "2" }), entry("3-0", { n: "3" })], deletedMessages: [],
  });
  assert.deepEqual(plain(await client.xAutoClaimJustId("s", "g", "carol", 0, "4-0")), {
    nextId: "0-0", messages: ["4-0"], deletedMessages: [],
  });
  assert.equal(await client.xGroupDelConsumer("s", "g", "carol"), 3);
  assert.equal(await client.xGroupDestroy("s", "g"), 1);
});

check("entries given back, claimed while reading, acknowledged and deleted", async (client) => {
  await client.xGroupCreate("s", "g", "$", { MKSTREAM: true });
  for (let n = 1; n <= 3; n++) await client.xAdd("s", `${n}-0`, { n: `${n}` });
  const next = { key: "s", id: ">" };
  await client.xReadGroup("g", "alice", next, { COUNT: 2 });
  assert.equal(await client.sendCommand(["XNACK", "s", "g", "FAIL", "IDS", "1", "1-0"]), 1);
  const claimed = await client.sendCommand(
    ["XREADGROUP", "GROUP", "g", "bob", "CLAIM", "0", "STREAMS", "s", ">"],
  );
  assert.ok(JSON.stringify(claimed).includes("1-0"), JSON.stringify(claimed));
  assert.deepEqual(await client.xAckDel("s", "g", ["1-0", "9-9"], "DELREF"), [1, -1]);
  assert.deepEqual(await client.xDelEx("s", ["2-0", "0-1"], "ACKED"), [2, -1]);
  assert.equal(await client.xLen("s"), 2);
});

check("information about streams, groups and consumers", async (client) => {
  await client.xAdd("s", "1-1", { a: "b" });
  await client.xAdd("s", "2-1", { a: "c" });
  await client.xGroupCreate("s", "g", "0");
  await client.xReadGroup("g", "alice", { key: "s", id: ">" }, { COUNT: 1 });
  const stream = plain(await client.xInfoStream("s"));
  assert.equal(stream.length, 2);
  assert.equal(stream["last-generated-id"], "2-1");
  assert.deepEqual(stream["first-entry"], entry("1-1", { a: "b" }));
  const [group] = plain(await client.xInfoGroups("s"));
  assert.deepEqual(group, {
    name: "g", consumers: 1, pending: 1, "last-delivered-id": "1-1", "entries-read": 1, lag: 1,
  });
  const [consumer] = plain(await client.xInfoConsumers("s", "g"));
  assert.equal(consumer.name, "alice");
  assert.equal(consumer.pending, 1);
});

check("a blocked read is served by another connection", async (client, another) => {
  const reader = await another();
  const reading = reader.xRead([{ key: "s", id: "$" }, { key: "t", id: "$" }], { BLOCK: 0 });
  await blocked(client);
  const id = await client.xAdd("t", "*", { news: "yes" });
  assert.deepEqual(plain(await reading), [{ name: "t", messages: [entry(id, { news: "yes" })] }]);
  await client.xGroupCreate("s", "g", "$", { MKSTREAM: true });
  const working = reader.xReadGroup("g", "c", { key: "s", id: ">" }, { BLOCK: 0 });
  await blocked(client);
  await client.xAdd("s", "5-5", { task: "1" });
  assert.deepEqual(plain(await working), [{ name: "s", messages: [entry("5-5", { task: "1" })] }]);
});

check("a blocked read ends with nothing", async (client) => {
  const started = Date.now();
  assert.equal(await client.xRead({ key: "s", id: "$" }, { BLOCK: 60 }), null);
  assert.ok(Date.now() - started >= 59);
});

check("transactions and pipelines", async (client, another) => {
  const done = await client.multi().xAdd("s", "1-1", { a: "b" }).xLen("s").exec();
  assert.deepEqual(done, ["1-1", 1]);
  await assert.rejects(client.multi().xLen("s").xAdd("s", "1-1", { a: "b" }).exec(), (error) => {
    assert.match(error.errorIndexes ? error.replies[1].message : error.message, /equal or smaller/);
    return true;
  });
  const other = await another();
  await client.watch("s");
  await other.xAdd("s", "2-1", { a: "b" });
  await assert.rejects(client.multi().xLen("s").exec(), { name: "Error", message: /watched keys has been changed/ });
  const ids = await Promise.all(
    Array.from({ length: 1000 }, (_, n) => client.xAdd("p", `${n + 1}-0`, { n: `${n}` })),
  );
  assert.deepEqual(ids, Array.from({ length: 1000 }, (_, n) => `${n + 1}-0`));
  assert.equal(await client.xLen("p"), 1000);
});

check("idempotent production", async (client) => {
  const once = await client.xAdd("s", "*", { a: "b" }, { IDMP: { pid: "producer", iid: "order-1" } });
  assert.equal(await client.xAdd("s", "*", { a: "b" }, { IDMP: { pid: "producer", iid: "order-1" } }), once);
  const auto = await client.xAdd("s", "*", { x: "y" }, { IDMPAUTO: { pid: "producer" } });
  assert.equal(await client.xAdd("s", "*", { x: "y" }, { IDMPAUTO: { pid: "producer" } }), auto);
  assert.equal(await client.xLen("s"), 2);
  assert.equal(await client.xCfgSet("s", { IDMP_DURATION: 50, IDMP_MAXSIZE: 7 }), "OK");
  const raw = await client.sendCommand(["XADD", "s", "IDMP", "producer", "order-2", "*", "a", "b"]);
  assert.equal(await client.sendCommand(["XADD", "s", "IDMP", "producer", "order-2", "*", "a", "b"]), raw);
  const info = plain(await client.xInfoStream("s"));
  assert.equal(info["idmp-duration"], 50);
  assert.equal(info["idmp-maxsize"], 7);
  assert.equal(info["iids-duplicates"], 3);
});

check("errors are errors", async (client) => {
  await client.set("string", "text");
  await client.xAdd("s", "1-1", { a: "b" });
  await client.xGroupCreate("s", "g", "0");
  await assert.rejects(client.xAdd("string", "*", { a: "b" }), /WRONGTYPE /);
  await assert.rejects(client.xGroupCreate("s", "g", "0"), /BUSYGROUP /);
  await assert.rejects(client.xReadGroup("no", "c", { key: "s", id: ">" }), /NOGROUP /);
  await assert.rejects(client.sendCommand(["HSET", "h", "f", "v"]), /ERR unknown command 'HSET'/);
  assert.equal(await client.ping(), "PONG");
});

check("publish and subscribe", async (client, another) => {
  const listener = await another();
  const heard = [];
  await listener.subscribe("news", (message, channel) => heard.push([channel, message]));
  await listener.pSubscribe("new*", (message, channel) => heard.push(["new*", channel, message]));
  assert.equal(await client.publish("news", "hello"), 2);
  await until(() => heard.length === 2, "two messages");
  assert.deepEqual(heard.sort(), [["new*", "news", "hello"], ["news", "hello"]]);
  await listener.unsubscribe("news");
  await listener.pUnsubscribe("new*");
  assert.equal(`${await listener.ping()}`, "PONG");
});

check("a pool of connections", async (client) => {
  const pool = createClientPool({ socket: { port }, RESP: protocol, database: 3 }, { maximum: 5 });
  await pool.connect();
  try {
    const ids = await Promise.all(Array.from({ length: 200 }, () => pool.xAdd("s", "*", { a: "b" })));
    assert.equal(new Set(ids).size, 200);
    assert.equal(await client.xLen("s"), 200);
  } finally {
    await pool.close();
  }
});

check("scanning", async (client) => {
  for (let n = 0; n < 50; n++) await client.xAdd(`s:${n}`, "*", { a: "b" });
  await client.set("other", "x");
  const found = new Set();
  for await (const keys of client.scanIterator({ MATCH: "s:*", COUNT: 7, TYPE: "stream" })) {
    [keys].flat().forEach((key) => found.add(key));
  }
  assert.equal(found.size, 50);
});

await run(
  async () => {
    const client = createClient({ socket: { port }, RESP: protocol, name: "node-redis", database: 3 });
    client.on("error", (error) => { throw error; });
    await client.connect();
    return client;
  },
  (client) => client.close(),
);
