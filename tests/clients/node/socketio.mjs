// socket.io with its adapter for streams over node-redis, and connections that are recovered.

import { createClient } from "redis";
import { check, port, protocol, run } from "./checks.mjs";
import { comeBack, end, hears, leave, twoProcesses, visitorOf } from "./socketio_processes.mjs";

check("a room hears what another process says", async (redis, another) => {
  const [here, there] = await twoProcesses(redis, await another());
  here.io.on("connection", (socket) => socket.join("room"));
  const visitor = await visitorOf(here);
  there.io.to("room").emit("said", 1);
  await hears(visitor, [1]);
  await end(redis, [visitor], [here, there]);
});

check("a visitor who was away hears what was said meanwhile", async (redis, another) => {
  const [here, there] = await twoProcesses(redis, await another());
  const visitor = await visitorOf(here);
  const witness = await visitorOf(here);
  there.io.emit("said", 1);
  await hears(visitor, [1]);
  await leave(visitor, redis);
  there.io.emit("said", 2);
  await hears(witness, [1, 2]);
  await comeBack(visitor);
  await hears(visitor, [1, 2]);
  await end(redis, [visitor, witness], [here, there]);
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
