// The decisions about a sample: a list of steps that can be undone and survives a reload.

import { useEffect, useMemo, useRef, useState } from "../vendor/preact.js";

const PREFIX = "gleanery.review ";
const MAX_SAMPLES = 20;
const MAX_STEPS = 3000;
export const MAX_NOTE = 2000;

/** Returns the decisions by output_id: { isOk, flags: [{ path, note }], comment }. */
export function decisionsOf(steps) {
  const decisions = new Map();
  for (const { id, kind, path, note } of steps) {
    const before = decisions.get(id) ?? { isOk: false, flags: [], comment: "" };
    if (kind === "ok") decisions.set(id, { ...before, isOk: true, flags: [] });
    else if (kind === "comment") decisions.set(id, { ...before, comment: note });
    else {
      const others = before.flags.filter((flag) => flag.path !== path);
      decisions.set(id, { ...before, isOk: false, flags: [...others, { path, note }] });
    }
  }
  return decisions;
}

export const isBad = (decision) => Boolean(decision?.flags.length);
export const isDecided = (decision) => Boolean(decision && (decision.isOk || decision.flags.length));

/** Returns the findings of a review, in the order of the sample. */
export function findingsOf(outputs, decisions) {
  return outputs.flatMap(({ output_id }) => {
    const decision = decisions.get(output_id);
    if (!decision) return [];
    const flags = decision.flags.map(({ path, note }) => ({ output_id, path, note }));
    return decision.comment ? [...flags, { output_id, path: null, note: decision.comment }] : flags;
  });
}

/** Steps of a sample, stored with ids, paths and notes only. A step on an older version is dropped. */
export function useDecisions(key, outputs) {
  const name = PREFIX + JSON.stringify(key);
  const versions = useMemo(() => new Map(outputs.map((one) => [one.output_id, one.version])), [outputs]);
  const [stored] = useState(() => read(name));
  const [steps, setSteps] = useState(() => stored.filter((step) => versions.get(step.id) === step.version));
  const current = useRef(steps);
  const change = (next) => {
    current.current = next;
    setSteps(next);
  };
  useEffect(() => {
    if (steps !== stored) write(name, steps);
  }, [steps]);
  return {
    decisions: useMemo(() => decisionsOf(steps), [steps]),
    dropped: stored.length - stored.filter((step) => versions.get(step.id) === step.version).length,
    add(id, kind, path = null, note = "") {
      const step = { id, version: versions.get(id), kind, path, note };
      change([...current.current, step].slice(-MAX_STEPS));
    },
    /** Removes the last step, and returns the output that it was about. */
    undo() {
      const last = current.current.at(-1);
      if (last) change(current.current.slice(0, -1));
      return last?.id;
    },
    forget: () => change([]),
    canUndo: steps.length > 0,
  };
}

/** Returns the seed of the newest sample of a job that has decisions; the key lacks the seed. */
export function unfinishedSeed(key) {
  const start = PREFIX + JSON.stringify(key).slice(0, -1) + ",";
  const name = storedNames().filter((one) => one.startsWith(start)).at(-1);
  return name && JSON.parse(name.slice(PREFIX.length)).at(-1);
}

/** Returns the names of the stored samples, oldest first. */
function storedNames() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX));
  const times = new Map(names.map((name) => [name, time(name)]));
  return names.sort((one, other) => times.get(one) - times.get(other));
}

function time(name) {
  try {
    return JSON.parse(localStorage.getItem(name)).at;
  } catch {
    return 0;
  }
}

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name)).steps.filter((step) => typeof step.id === "string");
  } catch {
    return [];
  }
}

function write(name, steps) {
  try {
    if (steps.length) localStorage.setItem(name, JSON.stringify({ at: Date.now(), steps }));
    else localStorage.removeItem(name);
    for (const old of storedNames().slice(0, -MAX_SAMPLES)) localStorage.removeItem(old);
  } catch {
    // The storage is full or switched off: the decisions stay in memory until the page is left.
  }
}
