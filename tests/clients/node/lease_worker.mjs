// A worker as users of ioredis write it, or a task from one:
//
//     node lease_worker.mjs start NAME PORT PLACE
//     node lease_worker.mjs add TASK PORT PLACE
//
// It takes what was idle for 100 ms, then what is new; ../lease_workers.py says what the tasks are.

import { closeSync, existsSync, openSync, writeSync } from "node:fs";
import { setTimeout as rest } from "node:timers/promises";
import Redis from "ioredis";

const IDLE_MS = 100;
const [verb, what, port, place] = process.argv.slice(2);
const redis = new Redis(Number(port));

async function handle(task) {
  const begun = `${place}/${task}`;
  const isFirst = !existsSync(begun);
  closeSync(openSync(begun, "a"));
  writeSync(1, `began ${task} ${what}\n`);
  if (task === "poison") process.exit(1);
  if (!isFirst || !["die", "slow"].includes(task)) return;
  while (task === "die" || !existsSync(`${place}/release`)) await rest(20);
}

async function taken() {
  const [, idle] = await redis.xautoclaim("jobs", "g", what, IDLE_MS, "0", "COUNT", 1);
  if (idle.length) return idle;
  const read = ["GROUP", "g", what, "COUNT", 1, "BLOCK", 50, "STREAMS", "jobs", ">"];
  return (await redis.xreadgroup(...read))?.[0][1] ?? [];
}

if (verb === "add") {
  await redis.xadd("jobs", "*", "task", what);
  await redis.quit();
} else {
  for (;;) {
    for (const [id, [, task]] of await taken()) {
      await handle(task);
      await redis.xack("jobs", "g", id);
    }
  }
}
