// What stands for processes of socket.io, and a visitor who notes what was said.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { until } from "./checks.mjs";

const STREAM = "socket.io";

async function startProcess(redis) {
  const http = createServer();
  const adapter = createAdapter(redis, { streamName: STREAM, blockTimeInMs: 60_000 });
  const recovery = { maxDisconnectionDuration: 600_000 };
  const server = new Server(http, { adapter, connectionStateRecovery: recovery });
  await new Promise((listens) => http.listen(0, "127.0.0.1", listens));
  return { io: server, address: `http://127.0.0.1:${http.address().port}` };
}

// Two processes that read the stream: what is said before they do, they miss.
export async function twoProcesses(redis, another) {
  const both = [await startProcess(redis), await startProcess(another)];
  await until(async () => {
    const clients = await redis.sendCommand(["CLIENT", "LIST"]);
    return clients.match(/ cmd=xread /g)?.length === both.length;
  }, "both read");
  return both;
}

export async function visitorOf(process) {
  const socket = io(process.address, { reconnection: false, transports: ["websocket"] });
  const heard = [];
  socket.on("said", (word) => heard.push(word));
  await new Promise((connects) => socket.once("connect", connects));
  return { socket, heard };
}

export async function hears(visitor, words) {
  await until(() => visitor.heard.length >= words.length, `heard ${visitor.heard}`);
  assert.deepEqual(visitor.heard, words);
}

// Break the connection of a visitor; returns when its process has written down what it had heard.
export async function leave(visitor, redis) {
  visitor.socket.io.engine.close();
  await until(async () => (await redis.keys("sio:session:*")).length === 1, "it is written down");
}

export async function comeBack(visitor) {
  visitor.socket.connect();
  await new Promise((connects) => visitor.socket.once("connect", connects));
  assert.ok(visitor.socket.recovered);
}

// End all of it; the readers end when something wakes them.
export async function end(redis, visitors, processes) {
  for (const visitor of visitors) visitor.socket.close();
  for (const process of processes) await process.io.close();
  await redis.xAdd(STREAM, "*", { nsp: "nobody" });
}
