// A client of virtual queues without dependencies, for Node.js 18 and newer. It knows which node has which queue, and asks it directly.
//
//   const client = new Client("http://127.0.0.1:4711", process.env.KQ_VIRTUAL_TOKEN);
//   await client.put("ARS-CHE", [{ data: Buffer.from("goal") }]);
//   for (const item of await client.claim("ARS-CHE", "scores", { n: 10, wait: 20 })) {
//     console.log(Buffer.from(item.data, "base64").toString());
//     await client.ack("ARS-CHE", "scores", [item.receipt]);
//   }
//
// node client.mjs check URL CASES.json     asks a live node for all cases, as `kq virtual check` does
// node client.mjs partitions MURMUR2.json  compares its partitions with Kafka's

import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export function murmur2(key) {
  const view = new DataView(key.buffer, key.byteOffset, key.length);
  let hash = 0x9747b28c ^ key.length;
  let at = 0;
  for (; at + 4 <= key.length; at += 4) {
    let four = Math.imul(view.getInt32(at, true), 0x5bd1e995);
    four = Math.imul(four ^ (four >>> 24), 0x5bd1e995);
    hash = Math.imul(hash, 0x5bd1e995) ^ four;
  }
  for (let left = key.length - at; left > 0; left--) hash ^= key[at + left - 1] << (8 * (left - 1));
  if (at < key.length) hash = Math.imul(hash, 0x5bd1e995);
  hash = Math.imul(hash ^ (hash >>> 13), 0x5bd1e995);
  return (hash ^ (hash >>> 15)) >>> 0;
}

export const partition = (key, partitions) => (murmur2(key) & 0x7fffffff) % partitions;

export class Refused extends Error {
  // A node's answer that is an error: status, and the facts of its body (title, detail, …).
  constructor(status, facts) {
    super(`${status} ${facts?.title}: ${facts?.detail}`);
    Object.assign(this, { status, facts });
  }
}

export class Client {
  // patience: seconds until a request that no owner answers is given up.
  constructor(url, token, patience = 60) {
    Object.assign(this, { url, token, patience, map: null });
  }

  async put(queue, records) {
    // The key lets a node know a put that is repeated: it is stored once.
    const headers = { "Idempotency-Key": randomUUID() };
    return this.ask("POST", queue, "/records", { records: records.map(asText) }, headers);
  }

  async claim(queue, consumer, body = {}) {
    return (await this.ask("POST", queue, `/consumers/${consumer}/claim`, body)).items;
  }

  ack = (queue, consumer, receipts) => this.verb("ack", queue, consumer, { receipts });
  release = (queue, consumer, receipts, delay = 0) => this.verb("release", queue, consumer, { receipts, delay });
  extend = (queue, consumer, receipts, lease = 30) => this.verb("extend", queue, consumer, { receipts, lease });
  bury = (queue, consumer, receipts, reason = "") => this.verb("bury", queue, consumer, { receipts, reason });
  verb = (verb, queue, consumer, body) => this.ask("POST", queue, `/consumers/${consumer}/${verb}`, body);

  // The owner's answer; `Refused` if it is an error. What moves meanwhile is asked for again.
  async ask(method, queue, path, body, headers) {
    const { status, content } = await this.send({ ask: method, path, body, headers }, queue);
    if (status >= 400) throw new Refused(status, content);
    return content;
  }

  async send(step, queue) {
    const deadline = Date.now() + this.patience * 1000;
    if (!this.map) await this.look();
    for (let pause = 0.05; ; pause = Math.min(1, pause * 2)) {
      const owners = Object.values(this.map.owners).map((owner) => owner?.url);
      const mine = this.map.owners[partition(Buffer.from(queue), this.map.partitions)]?.url;
      const other = owners.find((url) => url && url !== mine);
      if (step.at === "another" && !other) return null; // one node has all
      const base = step.at === "any" ? this.url : `${step.at === "another" ? other : mine}/queues/${queue}`;
      let failure = "nobody has its partition";
      if (step.at || mine) {
        try {
          const answer = await this.once(step.ask, base + step.path, step);
          const again = [409, 503].includes(answer.status) && answer.status !== step.status;
          if (!again || Date.now() > deadline) return answer;
          const map = answer.content?.map;
          if (map?.version > this.map.version) {
            this.map = map; // of a 409: it names the new owner
            continue;
          }
        } catch (error) {
          // No answer. A request that may have been done is repeated only if that does no harm: a put with a key.
          const safe = step.ask === "GET" || step.headers?.["Idempotency-Key"] || error.cause?.code === "ECONNREFUSED";
          if (!safe) throw error;
          failure = error.message;
        }
      }
      if (Date.now() > deadline) throw new Error(`no node answered for ${queue}: ${failure}`);
      await sleep(pause * (0.5 + Math.random() / 2));
      await this.look();
    }
  }

  async once(method, url, { body, headers, token }, seconds = 90) {
    // A long poll takes up to 60 s, and a node that is frozen never answers.
    const all = { ...headers };
    if (this.token && token !== false) all.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) all["Content-Type"] = "application/json";
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(url, { method, headers: all, body: text, signal: AbortSignal.timeout(seconds * 1000) });
    const found = await answer.text();
    return { status: answer.status, content: found ? JSON.parse(found) : null };
  }

  // The newest map of all nodes that answer. If none does, the known one stays.
  async look() {
    const known = Object.values(this.map?.owners ?? {}).flatMap((owner) => owner?.url ?? []);
    const asked = [...new Set([this.url, ...known])].map((url) => this.once("GET", `${url}/map`, {}, 5));
    const answers = await Promise.allSettled(asked);
    for (const { value } of answers)
      if (value?.status === 200 && !(this.map?.version > value.content.version)) this.map = value.content;
    const [{ reason, value }] = answers;
    if (!this.map) throw reason ?? new Refused(value.status, value.content);
  }
}

const base64 = (value) => (value == null ? null : Buffer.from(value).toString("base64"));
const asText = ({ data, key, headers = {}, delay = 0 }) => ({
  data: base64(data),
  key: base64(key),
  headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, base64(value)])),
  delay,
});

// --- the cases: what a step sends, and what its answer must contain (see the rules in the file) ---

function filled(value, values) {
  if (Array.isArray(value)) return value.map((each) => filled(each, values));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [filled(name, values), filled(each, values)]));
  if (typeof value !== "string") return value;
  if (value in values) return values[value];
  return Object.entries(values).reduce((text, [name, known]) => text.replaceAll(name, known), value);
}

function differs(expected, found, values, at = "answer") {
  if (expected === "*" || (typeof expected === "string" && expected.startsWith("$"))) {
    if (expected !== "*") values[expected] = found;
    return found === undefined ? `${at} is missing` : "";
  }
  const deep = expected && typeof expected === "object" && found && Array.isArray(expected) === Array.isArray(found);
  if (deep && (!Array.isArray(expected) || expected.length === found.length))
    return Object.keys(expected).map((name) => differs(expected[name], found[name], values, `${at}.${name}`)).find(Boolean) ?? "";
  return isDeepStrictEqual(expected, found) ? "" : `${at} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`;
}

async function run(client, steps) {
  const values = { "{q}": `check-${randomUUID()}` };
  for (const step of steps) {
    if (step.token === false && step.status === 401 && !client.token) continue;
    const queue = filled(step.queue ?? "{q}", values);
    if (!client.map) await client.look();
    values.$partition = partition(Buffer.from(queue), client.map.partitions);
    const { path, body } = step;
    const answer = await client.send({ ...step, path: filled(path, values), body: filled(body, values) }, queue);
    if (answer === null) continue;
    const where = `${step.ask} ${step.path}`;
    if (answer.status !== step.status) return `${where}: the status is ${answer.status}: ${JSON.stringify(answer.content)}`;
    const why = step.answer && differs(filled(step.answer, values), answer.content, values);
    if (why) return `${where}: ${why}`;
  }
  for (const queue of [values["{q}"], `${values["{q}"]}.dead`]) await client.send({ ask: "DELETE", path: "" }, queue);
  return "";
}

async function main([what, first, second]) {
  let failed = 0;
  if (what === "partitions") {
    const { vectors } = JSON.parse(await readFile(first, "utf8"));
    for (const each of vectors)
      for (const [count, part] of Object.entries(each.partition))
        failed += partition(Buffer.from(each.key, "hex"), Number(count)) !== part;
    console.log(`${vectors.length} keys, ${failed} differ`);
  } else if (what === "check") {
    const client = new Client(first, process.env.KQ_VIRTUAL_TOKEN);
    for (const { name, steps } of JSON.parse(await readFile(second, "utf8")).cases) {
      const why = await run(client, steps);
      failed += Boolean(why);
      console.log(`${why ? "✗" : "✓"} ${name}${why && `\n    ${why}`}`);
    }
  } else throw new Error("say: check URL CASES.json, or: partitions MURMUR2.json");
  process.exitCode = failed ? 1 : 0;
}

if (process.argv[1]?.endsWith("client.mjs")) await main(process.argv.slice(2));
