// The sending of a review: once, also from several tabs and after a reload in the middle.

import { path, post } from "../api.js";

const PREFIX = "gleanery.sending ";
const MAX_STORED = 20;
const memory = new Map(); // if the storage is full or switched off

export const HALF_SENT = "The job IS approved, but its flagged outputs are not sent back yet.";
const SENT = "This review was sent, in another tab.";

/**
 * Returns what was sent of a review: { isApproved, isFinished, open }. isApproved: the first of two requests has succeeded.
 * open: { status, body, key }, a request of which nobody knows whether the service has it.
 */
export function readSending(key) {
  const name = PREFIX + JSON.stringify(key);
  try {
    return JSON.parse(localStorage.getItem(name)) ?? memory.get(name) ?? {};
  } catch {
    return memory.get(name) ?? {};
  }
}

function write(key, state) {
  const name = PREFIX + JSON.stringify(key);
  memory.set(name, state);
  try {
    localStorage.setItem(name, JSON.stringify({ ...state, at: Date.now() }));
    const all = Object.keys(localStorage).filter((one) => one.startsWith(PREFIX));
    const times = new Map(all.map((one) => [one, JSON.parse(localStorage.getItem(one)).at]));
    for (const old of all.sort((one, other) => times.get(other) - times.get(one)).slice(MAX_STORED)) localStorage.removeItem(old);
  } catch {
    // This tab still knows it.
  }
}

/** Calls show whenever another tab has sent a part of the review. Returns the function that ends this. */
export function onSendingElsewhere(key, show) {
  const name = PREFIX + JSON.stringify(key);
  const listener = (event) => event.key === name && show(readSending(key));
  addEventListener("storage", listener);
  return () => removeEventListener("storage", listener);
}

/** Sends a review, which is one request or two. Returns the result of each. Only one tab sends at a time. */
export function sendReview(key, group, status, bodies) {
  const lock = PREFIX + JSON.stringify(key);
  return navigator.locks.request(lock, async () => {
    const before = readSending(key);
    if (before.isFinished || (await isHeld(`${lock} sent`))) throw new Error(SENT);
    const results = [];
    for (const body of toSend(before, status, bodies)) {
      const isFirst = bodies.length === 2 && body.status === "approved" && !body.output_ids;
      results.push(await sendKnown(key, group, status, body));
      write(key, { isApproved: isFirst || before.isApproved });
    }
    write(key, { isFinished: true });
    await hold(`${lock} sent`);
    return results;
  }).catch((problem) => {
    throw readSending(key).isApproved ? new Error(`${HALF_SENT} ${problem.message}`) : problem;
  });
}

/** Holds a lock as long as this tab lives. Other tabs see it at once, but what is stored only some time later. */
function hold(name) {
  return new Promise((held) => {
    navigator.locks.request(name, () => new Promise(() => held()));
  });
}

async function isHeld(name) {
  return (await navigator.locks.query()).held.some((lock) => lock.name === name);
}

/** Returns the bodies that are left. What the service may have comes first, exactly as it was. */
function toSend({ isApproved, open }, status, bodies) {
  const left = isApproved && bodies.length === 2 ? bodies.slice(1) : bodies;
  if (!open) return left;
  if (open.status !== status) return [open.body, ...left];
  const isFirst = open.body.status === "approved" && !open.body.output_ids && bodies.length === 2;
  return isFirst ? [open.body, bodies[1]] : [open.body];
}

/** Sends a request. A repetition has the same key, so the service stores the review once. */
async function sendOnce(key, group, status, body) {
  const before = readSending(key);
  const isSame = JSON.stringify(before.open?.body) === JSON.stringify(body);
  const open = isSame ? before.open : { status, body, key: crypto.randomUUID() };
  write(key, { ...before, open });
  try {
    return await post(path`v1/reviews/${group}`, body, { headers: { "idempotency-key": open.key } });
  } catch (error) {
    const isRefused = error.status >= 400 && error.status < 500 && error.status !== 409;
    if (isRefused) write(key, { ...before, open: undefined });
    throw error;
  }
}

/** Sends a review without outputs that the job no longer has. Returns what it was about, in numbers. */
async function sendKnown(key, group, status, body) {
  const gone = new Set();
  for (let rest = body; ; ) {
    const result = { isOfJob: !body.output_ids, findings: rest.findings.length, gone: gone.size, sentBack: 0, skipped: 0 };
    if (rest.output_ids?.length === 0) return result; // nothing is left to send back
    try {
      const { skipped_output_ids: skipped = [] } = await sendOnce(key, group, status, rest);
      const sentBack = (rest.output_ids?.length ?? 0) - skipped.length;
      return { ...result, sentBack, skipped: skipped.length };
    } catch (error) {
      const unknown = unknownOutputs(rest, error);
      if (!unknown.length) throw error;
      for (const id of unknown) gone.add(id);
      rest = { ...rest, findings: rest.findings.filter((one) => !gone.has(one.output_id)) };
      if (rest.output_ids) rest.output_ids = rest.output_ids.filter((id) => !gone.has(id));
    }
  }
}

/** Returns the outputs that an error is about, because they were deleted. */
function unknownOutputs(body, error) {
  const details = error.details?.filter((detail) => detail.type === "unknown_output") ?? [];
  return details.map(({ loc: [, member, at] }) => (member === "findings" ? body.findings[at].output_id : body.output_ids[at]));
}
