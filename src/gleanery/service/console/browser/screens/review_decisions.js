// The decisions about a sample: a list of steps that can be undone and survives a reload.
//
// A decision belongs to an output and its version, and a sample to a position (as_of). The outputs of the sample are stored
// beside the steps, so that a reload shows the same outputs. A value that was stored after the position is not covered by the
// review: what was decided about the value before still counts, and a decision about the later value is only a finding.

import { useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { notify } from "../ui/feedback.js";

const PREFIX = "gleanery.review ";
const MAX_SAMPLES = 20;
export const MAX_NOTE = 2000;

/** Returns the decisions by output_id: { version, isLater, isOk, flags: [{ path, note }], comment }. Each is about one version. */
export function decisionsOf(steps) {
  const decisions = new Map();
  for (const { id, version, isLater, kind, path, note } of steps) {
    const known = decisions.get(id);
    const before = known?.version === version ? known : { version, isLater, isOk: false, flags: [], comment: "" };
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
 * Steps of a sample, stored with ids, paths and notes only, beside about: { asOf, outputs, samples, known, from }.
 * In a sample of the same position, a step on an older version stays if the newer one is later than the sample, and a step on
 * an output outside of the sample stays. Of a sample of another position, only steps on the versions that are shown are taken
 * over: a version between may be covered that nobody has seen.
 */
export function useDecisions(key, sample, about) {
  const name = nameOf(key);
  const outputs = useMemo(() => new Map(sample.sample.map((one) => [one.output_id, one])), [sample]);
  const [stored] = useState(() => read(name));
  const isLater = (id) => outputs.get(id).stored > sample.cursor;
  const isSame = (step) => outputs.get(step.id)?.version === step.version;
  const fits = (step) => !outputs.has(step.id) || isSame(step) || isLater(step.id);
  const isShown = (step) => outputs.has(step.id) && fits(step);
  const [first] = useState(() =>
    stored.asOf === sample.cursor ? stored.steps.filter(fits) : stored.steps.filter(isSame).map((step) => ({ ...step, isLater: isLater(step.id) })),
  );
  const [steps, setSteps] = useState(first);
  const current = useRef(steps);
  const show = (next) => {
    current.current = next;
    setSteps(next);
  };
  const store = (next) => write(name, next, about);
  const change = (next) => {
    show(next);
    store(next);
  };
  useEffect(() => {
    if (stored.steps.length) store(steps);
    return onChangeElsewhere(name, show);
  }, []);
  return {
    decisions: useMemo(() => decisionsOf(steps.filter(fits)), [steps, outputs]),
    dropped: stored.steps.length - first.length,
    add(id, kind, path = null, note = "") {
      change([...current.current, { id, version: outputs.get(id).version, isLater: isLater(id), kind, path, note }]);
    },
    /** Removes the last step about an output of the sample, and returns that output. */
    undo() {
      const at = current.current.findLastIndex(isShown);
      if (at < 0) return undefined;
      const { id } = current.current[at];
      change(current.current.toSpliced(at, 1));
      return id;
    },
    forget() {
      change([]);
      for (const one of about.from ?? []) write(nameOf(one), []);
    },
    canUndo: steps.some(isShown),
  };
}

const nameOf = (key) => PREFIX + JSON.stringify(key);

/** Returns what is stored about a sample beside the steps. */
export const readAbout = (key) => read(nameOf(key));

/** Gives a new sample of the job the steps of an earlier one. Those that do not fit are dropped there, and stay in the earlier one. */
export function carryOver(key, next) {
  const { steps, from = [] } = read(nameOf(key));
  write(nameOf(next), steps, { from: [...from, key] });
}

/** Calls show with the steps whenever another tab has stored them. Returns the function that ends this. */
function onChangeElsewhere(name, show) {
  const listener = (event) => {
    if (event.storageArea === localStorage && event.key === name) show(read(name).steps);
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
    const stored = JSON.parse(localStorage.getItem(name));
    return { ...stored, steps: stored.steps.filter((step) => typeof step.id === "string") };
  } catch {
    return { steps: [] };
  }
}

/** Stores the steps, or says that they are not stored. */
function write(name, steps, about) {
  try {
    if (steps.length) localStorage.setItem(name, JSON.stringify({ ...about, at: Date.now(), steps }));
    else localStorage.removeItem(name);
    for (const old of storedNames().slice(0, -MAX_SAMPLES)) localStorage.removeItem(old);
  } catch {
    // Full or switched off: the decisions stay in memory until the sample is left.
    notify("Your decisions cannot be stored: a reload or a new sample loses them.", { tone: "bad" });
  }
}
