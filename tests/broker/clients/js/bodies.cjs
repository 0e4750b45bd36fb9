// What ordinary programs do with nats.js, one function each: `node bodies.cjs <function> <address> <name>`.
// Packages come from NODE_PATH. A body that returns has passed.
"use strict";

const assert = require("node:assert/strict");
const { connect, headers, wsconnect } = require("@nats-io/transport-node");
const { jetstream, jetstreamManager, AckPolicy, DeliverPolicy, JetStreamApiError } = require("@nats-io/jetstream");
const { Kvm } = require("@nats-io/kv");
const { Objm } = require("@nats-io/obj");

const text = (data) => new TextDecoder().decode(data);

async function collect(iterator, count) {
  const found = [];
  for await (const each of iterator) {
    found.push(each);
    if (found.length === count) break;
  }
  return found;
}

async function filled(nc, name, count = 6, config = {}) {
  const jsm = await jetstreamManager(nc);
  await jsm.streams.add({ name, subjects: [`${name}.>`], ...config });
  const js = jetstream(nc);
  for (let number = 0; number < count; number++) {
    await js.publish(`${name}.${number % 3}`, `${number}`);
  }
  return { jsm, js };
}

async function core(nc, name) {
  nc.subscribe(name, { callback: (_, message) => message.respond(`${message.string()}!`, { headers: message.headers }) });
  const sent = headers();
  sent.append("A", "1");
  sent.append("A", "2");
  const answer = await nc.request(name, "hello", { headers: sent, timeout: 2000 });
  assert.equal(answer.string(), "hello!");
  assert.deepEqual(answer.headers.values("A"), ["1", "2"]);
  await assert.rejects(nc.request(`${name}.nobody`, "x", { timeout: 2000 }), (error) => error.isNoResponders());
  const counts = [0, 0];
  for (const member of [0, 1]) {
    nc.subscribe(`${name}.q`, { queue: "q", callback: () => counts[member]++ });
  }
  const limited = nc.subscribe(`${name}.q`, { max: 3 });
  for (let number = 0; number < 50; number++) nc.publish(`${name}.q`, `${number}`);
  assert.deepEqual((await collect(limited)).map((message) => message.string()), ["0", "1", "2"]);
  await nc.flush();
  assert.equal(counts[0] + counts[1], 50);
  assert.equal(nc.info.jetstream, true);
  const many = await nc.requestMany(name, "m", { strategy: "timer", maxWait: 200 });
  assert.equal((await collect(many)).length, 1);
  await nc.drain();
}

async function publishing(nc, name) {
  const { jsm, js } = await filled(nc, name, 3);
  const first = await js.publish(`${name}.a`, "x", { msgID: "one", expect: { lastSequence: 3, streamName: name } });
  const again = await js.publish(`${name}.a`, "x", { msgID: "one" });
  assert.deepEqual([first.seq, first.duplicate, again.seq, again.duplicate], [4, false, 4, true]);
  await assert.rejects(js.publish(`${name}.a`, "x", { expect: { lastSequence: 1 } }), (error) => error.code === 10071);
  await assert.rejects(js.publish(`${name}-nowhere`, "x", { retries: 0 }));
  const all = await Promise.all(Array.from({ length: 100 }, () => js.publish(`${name}.b`, "y")));
  assert.equal(new Set(all.map((ack) => ack.seq)).size, 100);
  const info = await jsm.streams.info(name, { subjects_filter: ">" });
  assert.deepEqual([info.state.messages, info.state.subjects[`${name}.b`]], [104, 100]);
  assert.equal(await jsm.streams.find(`${name}.a`), name);
  assert.equal((await jsm.streams.getMessage(name, { last_by_subj: `${name}.a` })).seq, 4);
  assert.equal(await jsm.streams.deleteMessage(name, 4), true);
  assert.equal((await jsm.streams.purge(name, { filter: `${name}.b` })).purged, 100);
  assert.ok((await collect(jsm.streams.names())).includes(name));
  await assert.rejects(jsm.streams.info(`${name}-none`), (error) => error instanceof JetStreamApiError && error.code === 10059);
  assert.equal(await jsm.streams.delete(name), true);
}

async function pulling(nc, name) {
  const { jsm, js } = await filled(nc, name, 60);
  await jsm.consumers.add(name, { durable_name: "c", ack_policy: AckPolicy.Explicit, ack_wait: 500_000_000 });
  const consumer = await js.consumers.get(name, "c");
  const fetched = await collect(await consumer.fetch({ max_messages: 10, expires: 1000 }));
  assert.deepEqual(fetched.map((message) => Number(message.string())), [...Array(10).keys()]);
  for (const message of fetched) assert.equal(await message.ackAck(), true);
  const consumed = [];
  const messages = await consumer.consume({ max_messages: 20 });
  for await (const message of messages) {
    message.ack();
    consumed.push(message.seq);
    if (message.info.pending === 0) break;
  }
  assert.equal(consumed.length, 50);
  assert.equal(await consumer.next({ expires: 1000 }), null);
  await nc.flush();
  const info = await consumer.info();
  assert.deepEqual([info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq], [0, 0, 60]);
  await js.publish(`${name}.a`, "again");
  const first = await consumer.next({ expires: 2000 });
  first.nak();
  const second = await consumer.next({ expires: 2000 });
  assert.deepEqual([second.info.deliveryCount, second.redelivered], [2, true]);
  second.term("enough");
  assert.equal((await jsm.consumers.pause(name, "c", new Date(Date.now() + 60_000))).paused, true);
  assert.equal((await jsm.consumers.resume(name, "c")).paused, false);
  assert.deepEqual((await collect(jsm.consumers.list(name))).map((each) => each.name), ["c"]);
  assert.equal(await jsm.consumers.delete(name, "c"), true);
}

async function ordered(nc, name) {
  const { jsm, js } = await filled(nc, name, 50);
  const consumer = await js.consumers.get(name, { filter_subjects: [`${name}.0`, `${name}.2`] });
  const messages = await consumer.consume({ max_messages: 10, expires: 1000 });
  const seen = [];
  let lost = false;
  for await (const message of messages) {
    seen.push(Number(message.string()));
    if (seen.length === 20 && !lost) {
      lost = true;
      await jsm.consumers.delete(name, (await collect(jsm.consumers.list(name)))[0].name);
    }
    if (message.seq === 49 || seen.length > 60) break;
  }
  const wanted = [...Array(50).keys()].filter((number) => number % 3 !== 1);
  assert.deepEqual(seen, wanted);
}

async function pushing(nc, name) {
  const { jsm, js } = await filled(nc, name, 30);
  await jsm.consumers.add(name, {
    durable_name: "p",
    ack_policy: AckPolicy.Explicit,
    deliver_subject: `to.${name}`,
    deliver_policy: DeliverPolicy.All,
    flow_control: true,
    idle_heartbeat: 500_000_000,
  });
  const consumer = await js.consumers.getPushConsumer(name, "p");
  const messages = await consumer.consume();
  const seen = [];
  for await (const message of messages) {
    message.ack();
    seen.push(Number(message.string()));
    if (seen.length === 30) break;
  }
  assert.deepEqual(seen, [...Array(30).keys()]);
}

async function kv(nc, name) {
  const bucket = await new Kvm(nc).create(name, { history: 5 });
  assert.deepEqual([await bucket.put("a", "1"), await bucket.put("b.c", "2"), await bucket.put("a", "3")], [1, 2, 3]);
  const entry = await bucket.get("a");
  assert.deepEqual([entry.string(), entry.revision, entry.operation], ["3", 3, "PUT"]);
  assert.equal(await bucket.get("none"), null);
  assert.equal((await bucket.get("a", { revision: 1 })).string(), "1");
  await assert.rejects(bucket.create("a", "x"));
  await assert.rejects(bucket.update("a", "x", 1));
  assert.equal(await bucket.update("a", "4", 3), 4);
  await bucket.delete("b.c");
  assert.equal((await bucket.get("b.c")).operation, "DEL");
  assert.deepEqual(await collect(await bucket.keys()), ["a"]);
  assert.deepEqual((await collect(await bucket.history({ key: "a" }))).map((each) => each.revision), [1, 3, 4]);
  const watch = await bucket.watch();
  setTimeout(() => bucket.put("new", "5"), 50);
  const seen = await collect(watch, 3);
  assert.deepEqual(seen.map((each) => each.key).sort(), ["a", "b.c", "new"]);
  await bucket.purge("a");
  assert.equal((await collect(await bucket.history({ key: "a" }))).length, 1);
  await bucket.purgeDeletes(0);
  const status = await bucket.status();
  assert.deepEqual([status.bucket, status.history, status.values], [name, 5, 1]);
  assert.equal(await bucket.create("b.c", "again") > 0, true);
  assert.equal(await bucket.destroy(), true);
}

async function bucket(nc, name) {
  const made = await new Kvm(nc).create(name);
  for (const value of ["1", "2", "3"]) await made.put("fruit.apple", value);
  await made.put("fruit.pear", "4");
  await made.put("fruit.plum", "5");
  await made.delete("fruit.pear");
}

async function objects(nc, name) {
  const store = await new Objm(nc).create(name, { description: "d" });
  const data = new Uint8Array(700_000).map((_, index) => index % 251);
  const info = await store.putBlob({ name: "big one", description: "x" }, data);
  assert.deepEqual([info.size, info.chunks], [700_000, 6]);
  assert.deepEqual(Buffer.from(await store.getBlob("big one")), Buffer.from(data));
  await store.putBlob({ name: "small" }, new TextEncoder().encode("hello"));
  assert.equal(text(await store.getBlob("small")), "hello");
  assert.deepEqual((await store.list()).map((each) => each.name).sort(), ["big one", "small"]);
  assert.equal((await store.delete("small")).success, true);
  assert.equal(await store.getBlob("small"), null);
  assert.equal((await store.status()).description, "d");
  assert.equal(await store.destroy(), true);
}

async function direct(nc, name) {
  const { jsm } = await filled(nc, name, 9, { allow_direct: true });
  assert.equal((await jsm.direct.getMessage(name, { seq: 2 })).string(), "1");
  assert.equal((await jsm.direct.getMessage(name, { last_by_subj: `${name}.1` })).seq, 8);
  const batch = await collect(await jsm.direct.getBatch(name, { seq: 3, batch: 4 }));
  assert.deepEqual(batch.map((message) => message.seq), [3, 4, 5, 6]);
  const last = await collect(await jsm.direct.getLastMessagesFor(name, { multi_last: [`${name}.>`] }));
  assert.deepEqual(last.map((message) => message.seq), [7, 8, 9]);
}

async function websocket(nc, name) {
  assert.equal(nc.getServer().length > 0, true);
  const big = "x".repeat(200_000);
  const subscription = nc.subscribe(name, { max: 2 });
  nc.publish(name, big);
  nc.publish(name, "small");
  assert.deepEqual((await collect(subscription)).map((message) => message.string().length), [200_000, 5]);
  await filled(nc, `${name}-s`, 5);
  const consumer = await jetstream(nc).consumers.get(`${name}-s`);
  assert.equal((await collect(await consumer.fetch({ max_messages: 5, expires: 1000 }))).length, 5);
}

const bodies = { core, publishing, pulling, ordered, pushing, kv, bucket, objects, direct, websocket };

async function main() {
  const [body, address, name] = process.argv.slice(2);
  if (address.startsWith("ws")) globalThis.WebSocket = require("ws");
  const nc = await (address.startsWith("ws") ? wsconnect : connect)({ servers: address, reconnect: false });
  await bodies[body](nc, name);
  await nc.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
