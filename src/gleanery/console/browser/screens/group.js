// The page of a group: its jobs, with their reviews and scrapes.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { number, plural } from "../format.js";
import { usePages } from "../pages.js";
import { href } from "../router.js";
import { useRowKeys } from "../row_keys.js";
import { Page, Panel } from "../shell.js";
import { Button, StatusBadge } from "../ui/controls.js";
import { Empty, Loading, Problem } from "../ui/feedback.js";
import { Share } from "../ui/share.js";
import { Text, Time } from "../ui/text.js";
import { GroupTabs } from "./group_tabs.js";
import { Changes } from "./groups.js";

export function Group({ group }) {
  const pages = usePages((next, signal) => load(group, next, signal), [group]);
  useRowKeys();
  return html`<${Page}
    title=${group}
    crumbs=${[["Groups", ["groups"]]]}
    note=${pages.first && html`<${Numbers} group=${pages.first.group} />`}
    tabs=${html`<${GroupTabs} group=${group} current="jobs" />`}
  >
    <${Problem} error=${pages.error} onRetry=${pages.reload} />
    ${pages.isLoading && !pages.first && html`<${Loading} />`}
    ${pages.first && !pages.items.length && html`<${Panel}><${Empty} icon="groups" title="No jobs">A job appears with its first output.<//><//>`}
    ${pages.items.length > 0 && html`<${Panel} flush><${Table} group=${group} jobs=${pages.items} /><//>`}
    ${pages.hasMore && html`<div><${Button} isBusy=${pages.isLoading} onClick=${pages.more}>Show more jobs<//></div>`}
  <//>`;
}

async function load(group, next, signal) {
  const page = await get(path`console/api/groups/${group}/jobs`, { after: next }, signal);
  return { items: page.jobs, next: page.next, group: page.group };
}

function Numbers({ group }) {
  return html`<span class="groups-numbers">
    ${group.display_name && html`<span><${Text}>${group.display_name}<//></span>`}
    <span>${plural(group.outputs, "output")}</span>
    <span>${number(group.approved)} approved</span>
    <span>changed <${Time} at=${group.last_change} /></span>
    <${Changes} values=${group.changes} />
  </span>`;
}

function Table({ group, jobs }) {
  return html`<div class="table-box">
    <table class="cards">
      <thead>
        <tr><th>Job</th><th class="number">Outputs</th><th>Approved</th><th>Latest review</th><th>Last scrape</th><th><span class="visually-hidden">Actions</span></th></tr>
      </thead>
      <tbody>${jobs.map((job) => html`<${Row} key=${job.job_id} group=${group} job=${job} />`)}</tbody>
    </table>
  </div>`;
}

function Row({ group, job }) {
  const outputs = href(["groups", group, "outputs"], { job_id: job.job_id });
  const review = href(["groups", group, "review", job.job_id]);
  return html`<tr>
    <td>
      <a class="groups-name" data-row href=${outputs}><${Text}>${job.job_id}<//></a>
      ${job.waits_since !== null && html`<div class="groups-title muted">waits since <${Time} at=${job.waits_since} /></div>`}
    </td>
    <td class="number" data-label="Outputs">${number(job.outputs)}</td>
    <td data-label="Approved"><${Share} part=${job.approved} whole=${job.outputs} noun="approved" /></td>
    <td data-label="Latest review"><${Review} review=${job.review} /></td>
    <td data-label="Last scrape"><${Time} at=${job.scraped_at} /></td>
    <td class="groups-actions"><div>
      <${Button} small icon="review" href=${review} kind=${job.waits_since === null ? undefined : "primary"} aria-label=${`Review ${job.job_id}`}>Review<//>
      <${Button} small href=${outputs} aria-label=${`Outputs of ${job.job_id}`}>Outputs<//>
    </div></td>
  </tr>`;
}

function Review({ review }) {
  if (!review) return html`<${StatusBadge} />`;
  return html`<div class="groups-review">
    <span><${StatusBadge} status=${review.status} /> <small class="muted"><${Time} at=${review.created_at} />${review.person && html` by <${Text}>${review.person}<//>`}</small></span>
    ${review.comment && html`<small class="groups-comment muted"><${Text}>${review.comment}<//></small>`}
  </div>`;
}
