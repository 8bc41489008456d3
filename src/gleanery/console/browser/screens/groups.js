// All groups of the organization, with their numbers and their changes of the last 30 days.

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { atMost, number, percent, plural } from "../format.js";
import { usePages } from "../pages.js";
import { href } from "../router.js";
import { useRowKeys } from "../row_keys.js";
import { Page, Panel } from "../shell.js";
import { Button } from "../ui/controls.js";
import { Empty, Loading, Problem } from "../ui/feedback.js";
import { Share } from "../ui/share.js";
import { Sparkline } from "../ui/sparkline.js";
import { Text, Time } from "../ui/text.js";

export function Groups() {
  const pages = usePages(load, []);
  useRowKeys();
  return html`<${Page} title="Groups" note="A group holds the outputs of related jobs.">
    <${Problem} error=${pages.error} onRetry=${pages.reload} />
    ${pages.isLoading && !pages.first && html`<${Loading} />`}
    ${pages.first && !pages.items.length && html`<${NoGroups} />`}
    ${pages.items.length > 0 && html`<${Panel} flush><${Table} groups=${pages.items} /><//>`}
    ${pages.hasMore && html`<div><${Button} isBusy=${pages.isLoading} onClick=${pages.more}>Show more groups<//></div>`}
  <//>`;
}

async function load(next, signal) {
  const page = await get("console/api/groups", { after: next }, signal);
  return { items: page.groups, next: page.next };
}

function NoGroups() {
  return html`<${Panel}><${Empty} icon="groups" title="No groups yet">
    A scraper creates a group when it stores its first outputs. To try it, run <code>gleanery push shop items.jsonl --job spider</code>.
  <//><//>`;
}

function Table({ groups }) {
  return html`<div class="table-box">
    <table class="cards">
      <thead>
        <tr>
          <th>Group</th><th class="number">Outputs</th><th class="number">Jobs</th><th>Approved</th><th>Filled</th>
          <th>Changes in 30 days</th><th>Last change</th>
        </tr>
      </thead>
      <tbody>${groups.map((group) => html`<${Row} key=${group.group_id} group=${group} />`)}</tbody>
    </table>
  </div>`;
}

function Row({ group }) {
  return html`<tr>
    <td>
      <a class="groups-name" data-row href=${href(["groups", group.group_id])}><${Text}>${group.group_id}<//></a>
      ${group.display_name && html`<div class="groups-title muted"><${Text}>${group.display_name}<//></div>`}
    </td>
    <td class="number" data-label="Outputs">${number(group.outputs)}</td>
    <td class="number" data-label="Jobs">${atMost(group.jobs)}</td>
    <td data-label="Approved"><${Share} part=${group.approved} whole=${group.outputs} noun="approved" /></td>
    <td data-label="Filled"><${Filled} rate=${group.fill_rate} /></td>
    <td data-label="Changes in 30 days"><${Changes} values=${group.changes} /></td>
    <td data-label="Last change"><${Time} at=${group.last_change} /></td>
  </tr>`;
}

/** The mean fill rate of the fields. The least filled field is named if outputs lack it. */
function Filled({ rate }) {
  if (!rate) return html`<span class="absent">–</span>`;
  return html`<div class="groups-filled">
    <span>${percent(Math.floor(rate.mean * 1000) / 1000)}</span>
    ${rate.lowest < 1 && html`<small class="muted"><${Text}>${rate.lowest_path}<//> ${percent(rate.lowest)}</small>`}
  </div>`;
}

/** A sparkline of the changes of each day. */
export function Changes({ values }) {
  const total = values.reduce((sum, value) => sum + value, 0);
  if (!total) return html`<span class="muted">none</span>`;
  return html`<${Sparkline} values=${values} label=${`${plural(total, "change")} in 30 days, ${number(values.at(-1))} today`} />`;
}
