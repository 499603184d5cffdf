// What somebody sees who adds a job to a queue of BullMQ or Bull: node queues.mjs PORT LIBRARY

import Bull from "bull";
import { Queue } from "bullmq";

const connection = { host: "127.0.0.1", port: Number(process.argv[2]) };
const queue =
  process.argv[3] === "bull"
    ? new Bull("mail", { redis: connection })
    : new Queue("mail", { connection, skipVersionCheck: true });
queue.on("error", () => {});
try {
  await queue.add("send", { to: "ann" });
  console.log("added");
} catch (problem) {
  console.log(problem.message);
}
process.exit();
