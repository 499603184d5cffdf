// What both client scripts share: named checks, run one after the other, each on an empty server.
//
//     node ioredis.mjs PORT PROTOCOL [NAME]
//
// A check fails by throwing, or by leaving a connection open; the process must end by itself, too.

import net from "node:net";
import { createInterface } from "node:readline";

const checks = new Map();

export const port = Number(process.argv[2]);
export const protocol = Number(process.argv[3]);

export function check(name, body) {
  checks.set(name, body);
}

// Ask again until it is so; a client is told that it blocks only by the server.
export async function until(question, what) {
  const deadline = Date.now() + 10_000;
  while (!(await question())) {
    if (Date.now() > deadline) throw new Error(`not within 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// Ask the test to let the region die and its address lead to another one; returns when it does.
export async function failOver() {
  console.log("fail over");
  const answers = createInterface({ input: process.stdin });
  await new Promise((comes) => answers.once("line", comes));
  answers.close();
  process.stdin.unref?.();
}

// The reply to one command, over a connection of its own.
function ask(command) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, "127.0.0.1", () => socket.write(`${command}\r\n`));
    socket.once("data", (reply) => {
      socket.end();
      resolve(reply.toString());
    });
    socket.once("error", reject);
  });
}

async function runOne(body, connect, close) {
  await ask("FLUSHALL");
  const opened = [];
  const another = async () => {
    const client = await connect();
    opened.push(client);
    return client;
  };
  try {
    await body(await another(), another);
  } finally {
    for (const client of opened) await close(client);
  }
  const alone = async () => (await ask("INFO clients")).includes("connected_clients:1\r\n");
  await until(alone, "its connections are closed");
}

export async function run(connect, close) {
  const wanted = process.argv[4];
  for (const [name, body] of checks) {
    if (wanted !== undefined && wanted !== name) continue;
    try {
      await runOne(body, connect, close);
      console.log(`ok: ${name}`);
    } catch (problem) {
      console.log(`failed: ${name}: ${problem.stack}`);
    }
  }
}
