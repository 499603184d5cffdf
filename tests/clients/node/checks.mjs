// What both client scripts share: named checks, run one at a time by name, each on an empty server.
//
//     node ioredis.mjs PORT PROTOCOL NAME
//
// A check fails by throwing; anything left open is a failure too (the process must end by itself).

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

export async function run(connect, close) {
  const name = process.argv[4];
  const body = checks.get(name);
  if (body === undefined) throw new Error(`no such check: ${name}`);
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
  console.log(`ok: ${name}`);
}
