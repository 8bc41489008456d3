// Receive the events of a webhook, and keep a copy of a group: a receiver in Node, without packages.
//
// It needs Node 18 or newer, and these variables: GLEANERY_URL, GLEANERY_TOKEN (with the scope
// outputs:read), WEBHOOK_SECRET (whsec_…), WEBHOOK_GROUP if it is not prices, and PORT if it is not
// 5000. It stores everything in copy.json, in the folder in which it starts. Run one process of it.

import { createHmac, timingSafeEqual } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";

const { GLEANERY_URL, GLEANERY_TOKEN, WEBHOOK_SECRET } = process.env;
const { WEBHOOK_GROUP = "prices", PORT = "5000" } = process.env;
const KEY = Buffer.from(WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const MAX_BYTES = 64 * 1024; // an event has less than 20 kB
const TOLERANCE_SECONDS = 300;

const EMPTY = { cursor: 0, outputs: {}, events: {} };
const copy = existsSync("copy.json") ? JSON.parse(readFileSync("copy.json", "utf8")) : EMPTY;

/** Store the copy with its position, both or none. */
function save() {
  writeFileSync("copy.json.tmp", JSON.stringify(copy));
  renameSync("copy.json.tmp", "copy.json");
}

/** Return true if one of the signatures is that of this body, and the request is not old. */
function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signatures } = headers;
  if (!id || !/^\d+$/.test(time) || !signatures) return false;
  if (Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE_SECONDS) return false;
  const expected = createHmac("sha256", KEY).update(`${id}.${time}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const [version, text] = signature.split(",", 2);
    const given = Buffer.from(text ?? "", "base64");
    return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

/** Verify an event, store it or ring, and answer at once. */
async function receive(request, response) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > MAX_BYTES) return response.writeHead(413, { connection: "close" }).end();
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (request.method !== "POST" || request.url !== "/gleanery") return response.writeHead(404).end();
  if (!isSigned(request.headers, body)) return response.writeHead(400).end();
  const event = JSON.parse(body);
  if (event.type === "outputs.changed") {
    ring();
  } else {
    copy.events[request.headers["webhook-id"]] = event; // an event can arrive twice, with the same id
    save();
  }
  response.writeHead(204).end();
}

let isReading = false;
let hasRung = false;
let timer;

/** Read the changes now, or again after a reading that has begun. */
async function ring() {
  hasRung = true;
  if (isReading) return;
  isReading = true;
  clearTimeout(timer);
  let pause = 600; // seconds until the next reading without a doorbell
  try {
    while (hasRung) {
      hasRung = false;
      await readChanges();
    }
  } catch (error) {
    console.log(`The copy is behind: ${error.message}`);
    pause = 10;
  }
  isReading = false;
  timer = setTimeout(ring, 1000 * pause);
}

/** Read from the stored position until there are no further changes. */
async function readChanges() {
  const headers = { authorization: `Bearer ${GLEANERY_TOKEN}` };
  for (let cursor = copy.cursor; cursor !== null; ) {
    const path = `/v1/changes/${encodeURIComponent(WEBHOOK_GROUP)}?limit=1000&cursor=${cursor}`;
    const signal = AbortSignal.timeout(60_000);
    const response = await fetch(GLEANERY_URL + path, { headers, signal });
    if (response.status === 410 && cursor !== 0) {
      Object.assign(copy, { cursor: 0, outputs: {} }); // the position is too old: start again
      cursor = 0;
      continue;
    }
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    const page = await response.json();
    for (const { change, output_id, output } of page.changes) {
      if (change === "delete") delete copy.outputs[output_id];
      else copy.outputs[output_id] = output.data;
    }
    copy.cursor = page.cursor;
    save();
    cursor = page.metadata.next_cursor;
  }
}

process.on("unhandledRejection", (error) => console.log(error.message)); // a sender that went away
createServer(receive).listen(Number(PORT), "127.0.0.1", ring); // what has changed before
