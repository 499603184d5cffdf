// redlock over ioredis, with one server: a lock that is taken and given back by scripts.

import assert from "node:assert/strict";
import Redis from "ioredis";
import Redlock from "redlock";
import { check, port, protocol, run } from "./checks.mjs";

const locks = (redis, retryCount = 0) => new Redlock([redis], { retryCount, retryDelay: 20 });
const refusal = (taken) => taken.then(() => null, (problem) => problem);

check("a lock lets one in, who may hold it longer", async (redis, another) => {
  const mine = await locks(redis).lock("till", 60_000);
  const other = locks(await another());
  assert.ok(await refusal(other.lock("till", 60_000)));
  const longer = await mine.extend(90_000);
  assert.ok((await redis.pttl("till")) > 60_000);
  await longer.unlock();
  const theirs = await other.lock("till", 60_000);
  assert.ok(await refusal(longer.unlock()), "it is not mine any more");
  await theirs.unlock();
});

check("who waits is let in when the lock is given back", async (redis, another) => {
  const mine = await locks(redis).lock("till", 60_000);
  const waits = locks(await another(), 500).lock("till", 60_000);
  await mine.unlock();
  await (await waits).unlock();
  assert.equal(await redis.exists("till"), 0);
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
