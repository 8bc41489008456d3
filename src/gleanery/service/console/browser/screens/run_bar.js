// What a run has done, as a bar and as numbers. The bars of a job have the same scale, so a short one stands out.

import { html } from "../vendor/preact.js";
import { number, percent, plural } from "../format.js";
import { Badge } from "../ui/controls.js";
import { Text, visibleText } from "../ui/text.js";

/** The counts in the order of the bar, with their names for people. */
const COUNTS = { created: "new", updated: "updated", unchanged: "unchanged", missing: "missing", rejected: "rejected" };
const STATUS = {
  running: ["info", "Running"],
  complete: ["good", "Complete"],
  partial: ["warn", "Partial"],
  failed: ["bad", "Failed"],
  abandoned: ["bad", "Abandoned"],
  unknown: [undefined, "Not finished"],
};
const ABOUT_STATUS = {
  running: "It has not ended.",
  complete: "It has sent all outputs that the job has now.",
  partial: "It has sent some of the outputs.",
  failed: "It has failed.",
  abandoned: "It was started, and then silent for too long.",
  unknown: "Nobody has started or finished it. It ended after a pause of 30 minutes.",
};
const MUCH_LESS = 0.75; // of what is usual

/** [status, text], … for a filter. */
export const STATUSES = Object.entries(STATUS).map(([status, [, text]]) => [status, text]);

export function RunStatus({ status }) {
  const [tone, text] = STATUS[status] ?? [undefined, status];
  return html`<${Badge} tone=${tone} title=${ABOUT_STATUS[status]}>${text}<//>`;
}

export const sentBy = ({ counts }) => counts.created + counts.updated + counts.unchanged;

/** scale: the outputs that fill the bar; without it, that of the run. More rejected elements are cut off at its end. */
export function RunBar({ run, scale = run.scale }) {
  const shown = Object.keys(COUNTS).filter((name) => run.counts[name] > 0);
  const rejected = Math.min(run.counts.rejected, scale - sentBy(run) - run.counts.missing);
  const width = (name) => `${(100 * (name === "rejected" ? rejected : run.counts[name])) / Math.max(scale, 1)}%`;
  return html`<div class="run-outputs">
    <div class=${shown.length ? "run-bar" : "run-bar run-nothing"} aria-hidden="true">
      ${shown.map((name) => html`<span key=${name} class=${`run-${name}`} style=${{ width: width(name) }}></span>`)}
    </div>
    <div class="run-counts">
      ${shown.map((name) => html`<span key=${name} class="run-count"><i class=${`run-${name}`} aria-hidden="true"></i>${number(run.counts[name])} ${COUNTS[name]}</span>`)}
      ${run.counts.removed > 0 && html`<span class="run-count">${number(run.counts.removed)} removed</span>`}
      <${Remark} run=${run} />
    </div>
  </div>`;
}

/** The last runs of a job as columns, oldest first, in the colours of the bars. Runs with an alert are marked. usual: a line at this number of outputs. */
export function RunColumns({ runs, usual }) {
  if (!runs.length) return null;
  const sent = runs.map(sentBy);
  const scale = Math.max(1, usual ?? 0, ...runs.map((run, at) => sent[at] + run.counts.missing));
  const label = `Outputs of the last ${plural(runs.length, "run")}, oldest first: ${sent.map(number).join(", ")}`;
  return html`<div class="run-columns" role="img" aria-label=${label} title=${label}>
    ${runs.map((run) => html`<span key=${run.run_id} class=${run.has_alert ? "run-column run-alert" : "run-column"}><${Column} run=${run} scale=${scale} /></span>`)}
    ${usual && html`<span class="run-usual" style=${{ bottom: `${3 + (37 * usual) / scale}px` }}></span>`}
  </div>`;
}

function Column({ run, scale }) {
  const rejected = Math.min(run.counts.rejected, scale - sentBy(run) - run.counts.missing);
  const height = (name) => `${(100 * (name === "rejected" ? rejected : run.counts[name])) / scale}%`;
  return Object.keys(COUNTS).filter((name) => run.counts[name] > 0).map((name) => html`<i key=${name} class=${`run-${name}`} style=${{ height: height(name) }}></i>`);
}

/** What differs from other runs of the job. A run that has not ended may still send its outputs. */
function Remark({ run }) {
  if (run.status === "running") return null;
  const sent = sentBy(run);
  if (sent === 0) return html`<${Badge} tone="bad">No outputs<//>`;
  if (run.usual === null || sent >= MUCH_LESS * run.usual) return null;
  return html`<${Badge} tone="bad" title=${`Usually about ${number(run.usual)}`}>${percent(Math.round(100 * (1 - sent / run.usual)) / 100)} fewer than usual<//>`;
}

export function Labels({ labels }) {
  const names = Object.keys(labels);
  if (!names.length) return null;
  return html`<span class="run-labels">
    ${names.map((name) => html`<span key=${name} class="run-label" title=${visibleText(`${name}: ${labels[name]}`)}><span class="muted"><${Text}>${name}<//></span> <${Text}>${labels[name]}<//></span>`)}
  </span>`;
}
