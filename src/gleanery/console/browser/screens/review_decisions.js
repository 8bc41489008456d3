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
      const flags = before.flags.filter((flag) => flag.path !== path);
      if (kind === "flag") flags.push({ path, note });
      decisions.set(id, { ...before, isOk: false, flags });
    }
  }
  return decisions;
}

export const isBad = (decision) => Boolean(decision?.flags.length);
export const isDecided = (decision) => Boolean(decision && (decision.isOk || decision.flags.length));

/** Returns the findings of a review, also about outputs that are no longer in the sample. */
export function findingsOf(decisions) {
  return [...decisions].flatMap(([output_id, { flags, comment }]) => {
    const findings = flags.map(({ path, note }) => ({ output_id, path, note }));
    return comment ? [...findings, { output_id, path: null, note: comment }] : findings;
  });
}

/**
 * Steps of a sample, stored with ids, paths and notes only. A step on an older version is dropped.
 * A step on an output outside of the sample stays: the sample depends on its size and on the values of others.
 */
export function useDecisions(key, outputs) {
  const name = PREFIX + JSON.stringify(key);
  const versions = useMemo(() => new Map(outputs.map((one) => [one.output_id, one.version])), [outputs]);
  const fits = (step) => !versions.has(step.id) || versions.get(step.id) === step.version;
  const isShown = (step) => versions.has(step.id) && fits(step);
  const [stored] = useState(() => read(name));
  const [steps, setSteps] = useState(() => stored.filter(fits));
  const current = useRef(steps);
  const show = (next) => {
    current.current = next;
    setSteps(next);
  };
  const change = (next) => {
    show(next);
    write(name, next);
  };
  useEffect(() => {
    if (steps.length < stored.length) write(name, steps);
    return onChangeElsewhere(name, show);
  }, []);
  return {
    decisions: useMemo(() => decisionsOf(steps.filter(fits)), [steps]),
    dropped: stored.length - stored.filter(fits).length,
    add(id, kind, path = null, note = "") {
      const step = { id, version: versions.get(id), kind, path, note };
      change([...current.current, step].slice(-MAX_STEPS));
    },
    /** Removes the last step about an output of the sample, and returns that output. */
    undo() {
      const at = current.current.findLastIndex(isShown);
      if (at < 0) return undefined;
      const { id } = current.current[at];
      change(current.current.toSpliced(at, 1));
      return id;
    },
    forget: () => change([]),
    canUndo: steps.some(isShown),
  };
}

/** Calls show with the steps whenever another tab has stored them. Returns the function that ends this. */
function onChangeElsewhere(name, show) {
  const listener = (event) => {
    if (event.storageArea === localStorage && event.key === name) show(read(name));
  };
  addEventListener("storage", listener);
  return () => removeEventListener("storage", listener);
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
