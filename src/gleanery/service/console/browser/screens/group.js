// The page of a group: its jobs, with their reviews and last runs.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { lasting, number, plural } from "../format.js";
import { useRowKeys } from "../keys.js";
import { List, usePages } from "../pages.js";
import { href } from "../router.js";
import { Share } from "../ui/charts.js";
import { Button, StatusBadge } from "../ui/controls.js";
import { Empty } from "../ui/feedback.js";
import { Table } from "../ui/records.js";
import { Text, Time, visibleText } from "../ui/text.js";
import { ExportButton } from "./export_dialog.js";
import { GroupPage } from "./group_page.js";
import { Changes } from "./groups.js";

export function Group({ group }) {
  const pages = usePages((next, signal) => load(group, next, signal), [group]);
  useRowKeys();
  const note = pages.first && html`<${Numbers} group=${pages.first.group} />`;
  return html`<${GroupPage} group=${group} name=${pages.first?.group.display_name} current="Jobs" note=${note} actions=${html`<${ExportButton} group=${group} />`}>
    <${List} pages=${pages} empty=${html`<${Empty} icon="groups" title="No jobs">A job appears with its first output.<//>`}>
      ${(jobs) => html`<${Table} columns=${columnsOf(group)} rows=${jobs} id="job_id" />`}
    <//>
  <//>`;
}

async function load(group, next, signal) {
  const page = await get(path`console/api/groups/${group}/jobs`, { after: next }, signal);
  return { items: page.jobs, next: page.next, group: page.group };
}

function Numbers({ group }) {
  return html`<span>${plural(group.outputs, "output")}</span>
    <span>${number(group.approved)} approved</span>
    <span>changed <${Time} at=${group.last_change} /></span>
    <${Changes} values=${group.changes} />`;
}

function columnsOf(group) {
  const outputs = (job) => href(["groups", group, "outputs"], { job_id: job.job_id });
  return [
    ["Job", (job) => html`<a class="groups-name" data-row href=${outputs(job)}><${Text}>${job.job_id}<//></a>
      ${job.waits_since !== null && html`<div class="groups-title muted">waiting for <${Time} at=${job.waits_since} show=${lasting} /></div>`}`],
    ["Outputs", (job) => number(job.outputs), "number"],
    ["Approved", (job) => html`<${Share} part=${job.approved} whole=${job.outputs} noun="approved" />`],
    ["Latest review", (job) => html`<${Review} review=${job.review} />`],
    ["Last run", (job) => html`<${LastRun} group=${group} job=${job} />`, "time"],
    ["", (job) => html`<${Button} small icon="review" href=${href(["groups", group, "review", job.job_id])} kind=${job.waits_since === null ? undefined : "primary"} aria-label=${`Review ${visibleText(job.job_id)}`}>Review<//>
      <${Button} small href=${outputs(job)} aria-label=${`Outputs of ${visibleText(job.job_id)}`}>Outputs<//>`, "buttons"],
  ];
}

function LastRun({ group, job }) {
  const time = html`<${Time} at=${job.last_run_at} />`;
  return job.last_run_at === null ? time : html`<a href=${href(["groups", group, "runs"], { job_id: job.job_id })}>${time}</a>`;
}

function Review({ review }) {
  if (!review) return html`<${StatusBadge} />`;
  return html`<div class="groups-review">
    <span><${StatusBadge} status=${review.status} /> <small class="muted"><${Time} at=${review.created_at} />${review.person && html` by <${Text}>${review.person}<//>`}</small></span>
    ${review.comment && html`<small class="groups-comment muted"><${Text}>${review.comment}<//></small>`}
  </div>`;
}
