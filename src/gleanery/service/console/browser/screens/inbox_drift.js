// The part of the inbox about field drift, which is found in steps: the service compares some jobs at a time.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { percent, plural } from "../format.js";
import { href } from "../router.js";
import { Loading, Problem } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, Time, visibleText } from "../ui/text.js";
import { nameGroup } from "./group_page.js";

const MAX_STEPS = 25, MAX_JOBS = 20;

/** Returns jobs with drift as they are found, isLoading, isComplete, error and reload(). */
export function useDrift(mayRead) {
  const [round, setRound] = useState(0);
  const [state, setState] = useState({ jobs: [], isLoading: mayRead });
  useEffect(() => {
    if (!mayRead) return undefined;
    const controller = new AbortController();
    find(controller.signal, setState).catch(
      (error) => controller.signal.aborted || setState({ jobs: [], isLoading: false, error }),
    );
    return () => controller.abort();
  }, [round]);
  return { ...state, reload: () => setRound((count) => count + 1) };
}

async function find(signal, setState) {
  let jobs = [], next = null;
  for (let step = 0; step < MAX_STEPS && jobs.length < MAX_JOBS; step++) {
    const page = await get("console/api/inbox/drift", { after: next }, signal);
    [jobs, next] = [[...jobs, ...page.jobs], page.next];
    const isLast = next === null;
    setState({ jobs, isLoading: !isLast, isComplete: isLast });
    if (isLast) return;
  }
  setState({ jobs, isLoading: false, isComplete: false });
}

export function DriftPanel({ drift, mayRead }) {
  if (!mayRead) return null;
  return html`<${Panel} title="Field drift" flush>
    ${drift.error && html`<div class="inbox-none"><${Problem} error=${drift.error} onRetry=${drift.reload} /></div>`}
    ${drift.jobs.length > 0 &&
    html`<ul class="inbox-list">${drift.jobs.map((job) => html`<${DriftingJob} key=${JSON.stringify([job.group_id, job.job_id])} job=${job} />`)}</ul>`}
    ${drift.isLoading && !drift.jobs.length && html`<${Loading} label="Comparing runs" />`}
    ${!drift.isLoading && !drift.error && html`<${Rest} drift=${drift} />`}
  <//>`;
}

function Rest({ drift }) {
  if (!drift.isComplete) return html`<p class="inbox-none muted">Not every job was compared. The page of a group shows the drift of its fields.</p>`;
  return drift.jobs.length ? null : html`<p class="inbox-none muted">Fields are filled as often as before.</p>`;
}

function DriftingJob({ job }) {
  const more = job.field_count - job.fields.length;
  return html`<li>
    <a class="inbox-row inbox-small" data-row href=${href(["groups", job.group_id, "fields"], { job_id: job.job_id })}>
      <span class="inbox-name">
        <strong><${Text}>${job.job_id}<//></strong>
        <span class="muted" title=${visibleText(job.group_id)}><${Text}>${nameGroup(job.group_id, job.group_name)}<//></span>
      </span>
      <span class="inbox-when"><${Time} at=${job.last_run_at} /></span>
      <span class="inbox-words">
        ${job.fields.map((field) => html`<span key=${field.path}><${Field} field=${field} /></span>`)}
        ${more > 0 && html`<span class="muted">and ${plural(more, "other field")}</span>`}
      </span>
    </a>
  </li>`;
}

function Field({ field }) {
  return html`<code><${Text}>${field.path}<//></code> was filled in ${percent(field.before)}, now in${" "}
    <strong class=${field.now < field.before ? "inbox-worse" : "inbox-better"}>${percent(field.now)}</strong>`;
}
