// The runs of a group, newest first: what each has sent, next to the other runs of its job.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { duration } from "../format.js";
import { useRowKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { More, NoMatch, Refresh, filledPage, usePages } from "../pages.js";
import { href, pushQuery } from "../router.js";
import { Badge, SelectField } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { GroupPage } from "./group_page.js";
import { readGroup } from "./group_settings.js";
import { Labels, RunBar, RunStatus, STATUSES } from "./run_bar.js";

const MAX_JOBS = 500;

export function Runs({ group, query }) {
  const filter = { job_id: query.job_id, status: query.status };
  const pages = usePages((before, signal) => load(group, filter, before, signal), [group, ...Object.values(filter)]);
  const about = useLoad((signal) => readGroup(group, MAX_JOBS, signal), [group]).data;
  useRowKeys();
  return html`<${GroupPage} group=${group} name=${about?.display_name} current="Runs" actions=${html`<${Refresh} state=${pages} />`}>
    <${Filters} query=${query} jobs=${about?.jobs ?? []} />
    <${Loaded} state=${pages}>
      ${(runs) =>
        runs.length
          ? html`<${Panel} flush><${Table} class="runs" label="Runs" columns=${columnsOf(group, runs)} rows=${runs} id="run_id" /><${More} pages=${pages} /><//>`
          : Object.values(filter).some(Boolean) ? html`<${NoMatch} pages=${pages} noun="run" />` : NO_RUNS}
    <//>
  <//>`;
}

function load(group, filter, next, signal) {
  return filledPage(async (before) => {
    const page = await get(path`console/api/runs/${group}`, { ...filter, before }, signal);
    return { items: page.runs, next: page.next };
  }, next);
}

function Filters({ query, jobs }) {
  const names = jobs.map((one) => one.job_id);
  if (query.job_id && !names.includes(query.job_id)) names.unshift(query.job_id);
  const change = (part) => pushQuery({ ...query, ...part });
  return html`<div class="filters" role="search" aria-label="Filters">
    <${SelectField} label="Job" value=${query.job_id ?? ""} onValue=${(name) => change({ job_id: name })} options=${[["", "All jobs"], ...names.map((name) => [name, name])]} />
    <${SelectField} label="Status" value=${query.status ?? ""} onValue=${(status) => change({ status })} options=${[["", "Any status"], ...STATUSES]} />
  </div>`;
}

const NO_RUNS = html`<${Empty} icon="runs" title="No runs yet">A run appears when a job starts one, or stores its first output.<//>`;

function columnsOf(group, runs) {
  const scales = {};
  for (const run of runs) scales[run.job_id] = Math.max(scales[run.job_id] ?? 0, run.scale);
  return [
    ["Run", (run) => html`<div class="runs-name">
      <a class="groups-name" data-row href=${href(["groups", group, "runs", run.run_id])}><${Text}>${run.job_id}<//></a>
      <div class="runs-when"><span class="muted"><${Time} at=${run.start_date} /></span><${Labels} labels=${run.labels} /></div>
    </div>`],
    ["Status", (run) => html`<div class="runs-status">
      <${RunStatus} status=${run.status} />
      ${run.has_alert && html`<${Badge} tone="bad" title="It breaks a rule of the monitors">Alert<//>`}
      ${run.removal === "held" && html`<${Badge} tone="warn">Removal held<//>`}
      ${run.comparison === "pending" && html`<${Badge} tone="info">Comparing<//>`}
    </div>`],
    ["Outputs", (run) => html`<${RunBar} run=${run} scale=${scales[run.job_id]} />
      ${run.message && html`<div class="runs-message"><${Text}>${run.message}<//></div>`}`, "runs-outputs"],
    ["Duration", (run) => (run.finish_date ? duration(run.start_date, run.finish_date) : html`<span class="muted">–</span>`), "time"],
  ];
}
