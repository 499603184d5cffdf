// Libraries of Node whose region dies: their address leads to another region then.

import assert from "node:assert/strict";
import Redis from "ioredis";
import { createClient } from "redis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import Redlock from "redlock";
import { check, failOver, port, protocol, run } from "./checks.mjs";
import { comeBack, end, hears, leave, twoProcesses, visitorOf } from "./socketio_processes.mjs";

const refusal = (taken) => taken.then(() => null, (problem) => problem);

async function nodeRedis() {
  const client = createClient({ socket: { port, reconnectStrategy: 5 }, RESP: protocol });
  client.on("error", () => {}); // its region is gone, and it connects again
  await client.connect();
  return client;
}

const limited = (storeClient) => new RateLimiterRedis({ storeClient, points: 3, duration: 600 });

async function all(redis, another) {
  const lock = await new Redlock([redis], { retryCount: 0 }).lock("till", 600_000);
  const others = new Redlock([await another()], { retryCount: 0 });
  const limiter = limited(redis);
  await limiter.consume("door", 2);
  const [socketHere, socketThere] = [await nodeRedis(), await nodeRedis()];
  const [here, there] = await twoProcesses(socketHere, socketThere);
  const visitor = await visitorOf(here);
  const witness = await visitorOf(here);
  there.io.emit("said", 1);
  await hears(visitor, [1]);
  await leave(visitor, socketHere);

  await failOver();

  assert.ok(await refusal(others.lock("till", 600_000)), "the lock is held here, too");
  await (await lock.extend(900_000)).unlock();
  await (await others.lock("till", 600_000)).unlock();

  assert.equal((await limiter.consume("door")).remainingPoints, 0);
  assert.equal((await refusal(limiter.consume("door"))).remainingPoints, 0);

  there.io.emit("said", 2);
  await hears(witness, [1, 2]);
  await comeBack(visitor);
  await hears(visitor, [1, 2]);
  await end(socketHere, [visitor, witness], [here, there]);
  await socketHere.close();
  await socketThere.close();
}

check("a lock is held, points are spent, a visitor is recovered in the next region", all);

await run(
  async () => {
    const redis = new Redis({ port, protocol, lazyConnect: true, retryStrategy: () => 5 });
    redis.on("error", () => {});
    await redis.connect();
    return redis;
  },
  (redis) => redis.quit(),
);
