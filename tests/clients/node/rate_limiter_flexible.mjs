// rate-limiter-flexible over ioredis: counters with a deadline, which it keeps by a script.

import assert from "node:assert/strict";
import Redis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { check, port, protocol, run } from "./checks.mjs";

const limited = (storeClient) => new RateLimiterRedis({ storeClient, points: 3, duration: 60 });
const refusal = (limiter) => limiter.consume("door").then(() => null, (refused) => refused);

check("so many come in, and the next one is told how long to wait", async (redis) => {
  const limiter = limited(redis);
  for (const left of [2, 1, 0]) assert.equal((await limiter.consume("door")).remainingPoints, left);
  const refused = await refusal(limiter);
  assert.equal(refused.remainingPoints, 0);
  assert.ok(refused.msBeforeNext > 0 && refused.msBeforeNext <= 60_000);
  assert.equal((await limiter.consume("window")).remainingPoints, 2);
});

check("processes share the points", async (redis, another) => {
  const here = limited(redis);
  const there = limited(await another());
  await Promise.all([here.consume("door"), there.consume("door"), here.consume("door")]);
  assert.ok(await refusal(there));
});

check("points are given back, and a key is forgotten", async (redis) => {
  const limiter = limited(redis);
  await limiter.consume("door", 3);
  await limiter.reward("door", 2);
  assert.equal((await limiter.get("door")).remainingPoints, 2);
  assert.equal(await limiter.delete("door"), true);
  assert.equal(await limiter.get("door"), null);
});

await run(
  async () => {
    const redis = new Redis({ port, protocol, lazyConnect: true });
    redis.on("error", (error) => { throw error; });
    await redis.connect();
    return redis;
  },
  (redis) => redis.quit(),
);
