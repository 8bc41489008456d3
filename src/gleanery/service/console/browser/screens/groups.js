// All groups of the organization, with their numbers and their changes of the last 30 days.

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { atMost, number, percent, plural } from "../format.js";
import { useRowKeys } from "../keys.js";
import { List, usePages } from "../pages.js";
import { href } from "../router.js";
import { Share, Sparkline } from "../ui/charts.js";
import { Empty } from "../ui/feedback.js";
import { Page } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { ExportButton } from "./export_dialog.js";
import { nameGroup } from "./group_page.js";

export function Groups() {
  const pages = usePages(load, []);
  useRowKeys();
  return html`<${Page} title="Groups" note="A group holds the outputs of related jobs.">
    <${List} pages=${pages} empty=${html`<${NoGroups} />`}>
      ${(groups) => html`<${Table} columns=${COLUMNS} rows=${groups} id="group_id" />`}
    <//>
  <//>`;
}

async function load(next, signal) {
  const page = await get("console/api/groups", { after: next }, signal);
  return { items: page.groups, next: page.next };
}

function NoGroups() {
  return html`<${Empty} icon="groups" title="No groups yet">
    A scraper creates a group when it stores its first outputs. To try it, run <code>gleanery push shop items.jsonl --job spider</code>.
  <//>`;
}

const COLUMNS = [
  ["Group", Name],
  ["Outputs", (group) => number(group.outputs), "number"],
  ["Jobs", (group) => atMost(group.jobs), "number"],
  ["Approved", (group) => html`<${Share} part=${group.approved} whole=${group.outputs} noun="approved" />`],
  ["Filled", (group) => html`<${Filled} rate=${group.fill_rate} />`],
  ["Changes in 30 days", (group) => html`<${Changes} values=${group.changes} />`],
  ["Last change", (group) => html`<${Time} at=${group.last_change} />`, "time"],
  ["", (group) => html`<${ExportButton} small group=${group.group_id} />`, "buttons"],
];

function Name(group) {
  return html`<a class="groups-name" data-row href=${href(["groups", group.group_id])}><${Text}>${nameGroup(group.group_id, group.display_name)}<//></a>
    ${group.display_name && html`<div class="groups-title muted"><code><${Text}>${group.group_id}<//></code></div>`}`;
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
  return html`<${Sparkline} values=${values} label=${`${plural(total, "change")} in 30 days, at most ${number(Math.max(...values))} a day, ${number(values.at(-1))} today`} />`;
}
