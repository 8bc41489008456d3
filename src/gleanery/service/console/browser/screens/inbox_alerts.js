// The part of the inbox about open alerts. Acknowledged ones come last, and muted ones are folded away.

import { html, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { number, plural } from "../format.js";
import { More, usePages } from "../pages.js";
import { href } from "../router.js";
import { Loaded, Problem } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, visibleText } from "../ui/text.js";
import { Alert, rights } from "./alerts.js";
import { nameGroup } from "./group_page.js";
import { RunColumns } from "./run_bar.js";

async function load(muted, after, signal) {
  const page = await get("console/api/inbox/alerts", { after, muted: muted ? "true" : null }, signal);
  return { items: page.alerts, next: page.next, counts: page.counts };
}

/** Returns the open alerts that are not muted as usePages does; none if the token may not read them. */
export function useAlerts(session) {
  const { canRead } = rights(session);
  return usePages((after, signal) => (canRead ? load(false, after, signal) : { items: [], next: null }), [canRead]);
}

/** Nothing, unless there is an alert. */
export function AlertsPanel({ alerts, session }) {
  const { items, first, error, reload } = alerts;
  const counts = first?.counts;
  if (!items.length && !counts?.muted) return html`<${Problem} error=${error} onRetry=${reload} />`;
  const note = [[counts.new, "new"], [counts.acknowledged, "acknowledged"]].filter(([count]) => count).map(([count, name]) => `${number(count)} ${name}`).join(", ");
  return html`<${Panel} flush title="Alerts" actions=${html`<small class="muted">${note}</small>`}>
    <${Problem} error=${error} />
    ${items.length > 0 && html`<${Items} ...${{ pages: alerts, session, onChanged: reload }} />`}
    ${counts.has_more && html`<p class="inbox-none muted">There are more open alerts than this list shows. The page of a group lists all of its alerts.</p>`}
    ${counts.muted > 0 && html`<${Muted} ...${{ count: counts.muted, session, onChanged: reload }} />`}
  <//>`;
}

function Items({ pages, session, onChanged }) {
  const { canWrite } = rights(session);
  return html`<ul class="inbox-list alerts">${pages.items.map((one) => html`<${Item} key=${one.alert_id} ...${{ alert: one, canWrite, onChanged }} />`)}</ul>
    <${More} pages=${pages} />`;
}

function Item({ alert, canWrite, onChanged }) {
  const { group_id: group, job_id: job, facts } = alert;
  const usual = alert.kind === "few_outputs" ? facts.usual : null;
  const about = html`<span title=${visibleText(group)}><${Text}>${nameGroup(group, alert.group_name)}<//></span>`;
  const to = href(["groups", group, "monitors"], { job_id: job });
  return html`<${Alert} ...${{ alert, to, about, canWrite, onChanged }} chart=${html`<${RunColumns} runs=${alert.recent} usual=${usual} />`} />`;
}

function Muted({ count, session, onChanged }) {
  const [isOpen, setIsOpen] = useState(false);
  return html`<details class="alerts-muted" onToggle=${(event) => setIsOpen(event.target.open)}>
    <summary class="muted">${plural(count, "muted alert")}</summary>
    ${isOpen && html`<${MutedItems} key=${count} ...${{ session, onChanged }} />`}
  </details>`;
}

function MutedItems({ session, onChanged }) {
  const pages = usePages((after, signal) => load(true, after, signal), []);
  return html`<${Loaded} state=${pages}>${() => html`<${Items} ...${{ pages, session }} onChanged=${() => (pages.reload(), onChanged())} />`}<//>`;
}
