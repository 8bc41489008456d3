// The dialog that adds and changes a rule. It says what the rule would have done in the past, before it is saved.

import { html, useEffect, useState } from "../vendor/preact.js";
import { plural } from "../format.js";
import { useAction } from "../load.js";
import { Checkbox, SelectField, TextField } from "../ui/controls.js";
import { FormDialog } from "../ui/dialog.js";
import { notify } from "../ui/feedback.js";
import { KINDS } from "./alerts.js";

const WITH_PATH = ["fill_rate", "kind_change", "number_shift"];
const PAUSE = 400; // after the last key, before a preview
const NUMBER = /^\d{1,12}(\.\d{1,9})?$/;

/** The threshold of each kind: its label, and how many times larger the form shows it. */
const THRESHOLDS = {
  no_run: ["Times the usual interval", 1],
  failed_run: ["Failed runs in a row", 1],
  few_outputs: ["At most this share of the usual outputs (%)", 100],
  fill_rate: ["Drop of the fill rate (percentage points)", 100],
  kind_change: ["Values with another kind (%)", 100],
  rejected: ["Elements that are not valid (%)", 100],
  missing: ["Outputs that are missing (%)", 100],
  number_shift: ["Times larger or smaller", 1],
  duplicates: ["Outputs with the same data as another one (%)", 100],
};

const shown = (value, factor = 1) => (value === null || value === undefined ? "" : String(Number((value * factor).toPrecision(12))));

function toForm(rule, thresholds) {
  const kind = rule?.kind ?? "few_outputs";
  return {
    kind,
    job: rule?.job_id ?? "",
    path: rule?.path ?? "",
    threshold: shown(rule?.threshold ?? thresholds[kind].default, THRESHOLDS[kind]?.[1]),
    hours: shown(rule?.hours),
    minimum: shown(rule?.minimum),
    enabled: rule?.enabled ?? true,
  };
}

/** Another text goes to the service as it is, and the service says what is wrong. */
const toNumber = (text) => (text.trim() === "" ? null : NUMBER.test(text.trim()) ? Number(text) : text);

function toRule({ kind, job, path, threshold, hours, minimum, enabled }) {
  const value = toNumber(threshold);
  const factor = THRESHOLDS[kind]?.[1] ?? 1;
  return {
    kind,
    job_id: job || null,
    path: (WITH_PATH.includes(kind) && path.trim()) || null,
    threshold: typeof value === "number" ? Number((value / factor).toPrecision(12)) : value,
    hours: kind === "no_run" ? toNumber(hours) : null,
    minimum: kind === "few_outputs" ? toNumber(minimum) : null,
    enabled,
  };
}

/** Returns what is wrong with the threshold; undefined if nothing is. */
function problemOf({ kind, threshold }, thresholds) {
  if (!THRESHOLDS[kind] || threshold.trim() === "") return undefined; // empty: the default
  const [, factor] = THRESHOLDS[kind];
  const { smallest, largest } = thresholds[kind];
  const value = toNumber(threshold) / factor;
  return value >= smallest && value <= largest ? undefined : `Give a number from ${shown(smallest, factor)} to ${shown(largest, factor)}.`;
}

/** What a rule would have done, as a sentence. */
export function previewText({ runs, alerts }) {
  return runs ? `It would have opened ${plural(alerts, "alert")} in the last ${plural(runs, "run")}.` : "No past run can be judged by it yet.";
}

/** rule: the one to change; without it, the dialog adds one. onPreview(rule, signal) and onSave(rule) resolve when the service has answered. */
export function RuleForm({ rule, jobs, thresholds, onPreview, onSave, onClose }) {
  const [form, setForm] = useState(() => toForm(rule, thresholds));
  const wrong = problemOf(form, thresholds);
  const action = useAction(async () => {
    if (wrong) return;
    await onSave(toRule(form));
    notify(rule ? "The rule is saved." : "The rule is added.");
    onClose();
  });
  const { error } = action;
  const set = (part) => setForm((before) => ({ ...before, ...part }));
  const member = (name) => ({ value: form[name], onValue: (value) => set({ [name]: value }), error: error?.of?.(name) });
  const isShown = ["path", "threshold", "hours", "minimum"].some((name) => error?.of?.(name));
  const names = form.job && !jobs.includes(form.job) ? [form.job, ...jobs] : jobs;
  const limits = THRESHOLDS[form.kind];
  const [title, label] = rule ? ["Change the rule", "Save"] : ["Add a rule", "Add rule"];
  return html`<${FormDialog} ...${{ title, label, action, onClose }} problem=${!isShown && error}>
    <${SelectField} label="Rule" disabled=${Boolean(rule)} value=${form.kind} options=${Object.entries(KINDS)} onValue=${(kind) => setForm((before) => ({ ...toForm({ kind }, thresholds), job: before.job }))} />
    <${SelectField} label="Job" options=${[["", "All jobs"], ...names.map((name) => [name, name])]} ...${member("job")} />
    ${WITH_PATH.includes(form.kind) && html`<${TextField} label="Field" hint="Such as price, or offer.price. Empty: all fields." ...${member("path")} />`}
    ${limits && html`<${TextField} label=${limits[0]} inputmode="decimal" ...${member("threshold")} error=${wrong ?? error?.of?.("threshold")} />`}
    ${form.kind === "no_run" && html`<${TextField} label="Or hours without a run" hint="Instead of the usual interval. It counts for jobs without runs as well." inputmode="decimal" ...${member("hours")} />`}
    ${form.kind === "few_outputs" && html`<${TextField} label="Or fewer outputs than" hint="Whatever is usual." inputmode="numeric" ...${member("minimum")} />`}
    <${Checkbox} label="The rule is on" checked=${form.enabled} onValue=${(enabled) => set({ enabled })} />
    ${form.enabled && !wrong && html`<${Preview} rule=${toRule(form)} onPreview=${onPreview} />`}
  <//>`;
}

function Preview({ rule, onPreview }) {
  const [text, setText] = useState("");
  useEffect(() => {
    const controller = new AbortController();
    const show = (found) => controller.signal.aborted || setText(found);
    const timer = setTimeout(() => onPreview(rule, controller.signal).then((found) => show(previewText(found)), () => show("")), PAUSE);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [JSON.stringify(rule)]);
  return html`<p class="monitors-preview" role="status">${text || "Judging the past runs …"}</p>`;
}
