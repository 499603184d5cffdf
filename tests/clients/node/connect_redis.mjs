// connect-redis over node-redis: where Express keeps its sessions.

import assert from "node:assert/strict";
import { RedisStore } from "connect-redis";
import { createClient } from "redis";
import { check, port, protocol, run } from "./checks.mjs";

const stored = (client) => {
  const store = new RedisStore({ client, ttl: 100 });
  return (name, ...given) =>
    new Promise((resolve, reject) => {
      store[name](...given, (problem, found) => (problem ? reject(problem) : resolve(found)));
    });
};
const session = (user) => ({ cookie: {}, user });

check("a session is kept, and ended", async (redis) => {
  const store = stored(redis);
  await store("set", "a", session("ann"));
  assert.equal((await store("get", "a")).user, "ann");
  assert.ok((await redis.ttl("sess:a")) > 0);
  await store("destroy", "a");
  assert.equal((await store("get", "a")) ?? null, null);
});

check("a session that is used lives on", async (redis) => {
  const store = stored(redis);
  await store("set", "a", session("ann"));
  await redis.expire("sess:a", 10);
  await store("touch", "a", session("ann"));
  assert.ok((await redis.ttl("sess:a")) > 10);
});

check("all sessions are found, and removed", async (redis) => {
  const store = stored(redis);
  for (let n = 0; n < 150; n++) await store("set", `s${n}`, session(n));
  await redis.set("other", "x");
  assert.equal(await store("length"), 150);
  assert.equal(new Set(await store("ids")).size, 150);
  assert.equal((await store("all")).length, 150);
  await store("clear");
  assert.equal(await store("length"), 0);
  assert.equal(await redis.get("other"), "x");
});

await run(
  async () => {
    const client = createClient({ socket: { port }, RESP: protocol });
    client.on("error", (error) => { throw error; });
    await client.connect();
    return client;
  },
  (client) => client.close(),
);
