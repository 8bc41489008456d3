// The monitors of a group: its rules, suggestions, and the history of its alerts.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { useRowKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { More, NoMatch, Refresh, usePages } from "../pages.js";
import { pushQuery } from "../router.js";
import { SelectField } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Alert, FieldFacts, rights } from "./alerts.js";
import { GroupPage } from "./group_page.js";
import { readGroup } from "./group_settings.js";
import { Rules } from "./monitors_rules.js";
import { Suggestions } from "./monitors_suggestions.js";

const MAX_JOBS = 500, PAGE = 20;
const STATES = [["", "Open and closed"], ["open", "Open"], ["closed", "Closed"]];

export function Monitors({ group, query, session }) {
  const { canWrite } = rights(session);
  const mayReadJobs = session.scopes.includes("outputs:read");
  const rules = useLoad((signal) => get(path`console/api/monitors/${group}`, {}, signal), [group]);
  const about = useLoad(async (signal) => (mayReadJobs ? readGroup(group, MAX_JOBS, signal) : undefined), [group]).data;
  const alerts = useHistory(group, query);
  const suggestions = useLoad((signal) => get(path`v1/monitors/${group}/suggested`, {}, signal), [group]);
  useRowKeys();
  const jobs = (about?.jobs ?? []).map((one) => one.job_id);
  const changed = () => (rules.reload(), suggestions.reload(), alerts.reload());
  return html`<${GroupPage} group=${group} name=${about?.display_name} current="Monitors" actions=${html`<${Refresh} state=${alerts} onClick=${changed} />`}>
    <${Loaded} state=${rules}>
      ${(found) => html`
        <${History} ...${{ pages: alerts, query, jobs, canWrite }} />
        <${Rules} ...${{ group, found, jobs, canWrite, onChanged: changed }} />
        <${Suggestions} ...${{ group, state: suggestions, canWrite, onChanged: changed }} />`}
    <//>
  <//>`;
}

function useHistory(group, { state, job_id: job }) {
  return usePages(
    async (cursor, signal) => {
      const { alerts, metadata } = await get("v1/alerts", { group_id: group, state, job_id: job, limit: PAGE, cursor }, signal);
      return { items: alerts, next: metadata.next_cursor };
    },
    [group, state, job],
  );
}

function History({ pages, query, jobs, canWrite }) {
  const names = query.job_id && !jobs.includes(query.job_id) ? [query.job_id, ...jobs] : jobs;
  const change = (part) => pushQuery({ ...query, ...part });
  const filters = html`<div class="filters" role="search" aria-label="Filters">
    <${SelectField} label="Job" value=${query.job_id ?? ""} onValue=${(name) => change({ job_id: name })} options=${[["", "All jobs"], ...names.map((name) => [name, name])]} />
    <${SelectField} label="State" value=${query.state ?? ""} onValue=${(state) => change({ state })} options=${STATES} />
  </div>`;
  const none = query.job_id || query.state ? html`<${NoMatch} pages=${pages} noun="alert" />` : html`<${Empty} icon="check" title="No alerts yet">An alert opens when a run breaks a rule, or when a job is overdue.<//>`;
  return html`<${Panel} flush title="Alerts">
    <div class="monitors-filters">${filters}</div>
    <${Loaded} state=${pages}>
      ${(alerts) =>
        alerts.length
          ? html`<ul class="inbox-list alerts">${alerts.map((one) => html`<${Alert} key=${one.alert_id} alert=${one} canWrite=${canWrite} onChanged=${pages.reload}><${FieldFacts} alert=${one} /><//>`)}</ul><${More} pages=${pages} />`
          : none}
    <//>
  <//>`;
}
