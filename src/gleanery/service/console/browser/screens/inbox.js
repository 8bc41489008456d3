// The inbox: alerts, jobs to review, removals that are held, webhooks that fail, and expiring sessions.

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { atMost, lasting, number, plural } from "../format.js";
import { useRowKeys } from "../keys.js";
import { useReloadOnReturn } from "../load.js";
import { More, Refresh, usePages } from "../pages.js";
import { href } from "../router.js";
import { Share } from "../ui/charts.js";
import { Badge, StatusBadge } from "../ui/controls.js";
import { Empty, Loading, NoScope, Problem } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Text, Time, visibleText } from "../ui/text.js";
import { nameGroup } from "./group_page.js";
import { AlertsPanel, useAlerts } from "./inbox_alerts.js";
import { RemovalsPanel, useRemovals } from "./inbox_removals.js";
import { WebhooksPanel, useFailingWebhooks } from "./inbox_webhooks.js";

export function Inbox({ session }) {
  const pages = usePages(load, []);
  const mayRead = session.scopes.includes("outputs:read");
  const alerts = useAlerts(session);
  const removals = useRemovals(mayRead);
  const webhooks = useFailingWebhooks(session);
  const reload = () => (alerts.reload(), pages.reload(), removals.reload(), webhooks.reload());
  useRowKeys();
  useReloadOnReturn(reload);
  const refresh = html`<${Refresh} state=${pages} onClick=${reload} />`;
  return html`<${Page} title="Inbox" note=${note(pages)} actions=${refresh}>
    <${Problem} error=${pages.error} onRetry=${pages.reload} />
    ${pages.first ? html`<${Sections} ...${{ pages, alerts, removals, webhooks, session, mayRead }} />` : pages.isLoading && html`<${Loading} />`}
  <//>`;
}

async function load(next, signal) {
  const { waiting, sessions } = await get("console/api/inbox", { after: next }, signal);
  return { items: waiting?.jobs ?? [], next: waiting?.next ?? null, sessions };
}

function note({ items, hasMore, first }) {
  if (!first || !items.length) return null;
  return hasMore ? `More than ${plural(items.length, "job")} wait for a review.` : `${plural(items.length, "job waits", "jobs wait")} for a review.`;
}

function Sections({ pages, alerts, removals, webhooks, session, mayRead }) {
  const { sessions } = pages.first;
  const parts = [alerts, removals, webhooks];
  const isEmpty = !alerts.first?.counts?.muted && ![alerts.items, pages.items, removals.items, webhooks.data ?? [], sessions?.sessions ?? []].some((list) => list.length);
  if (isEmpty && mayRead && sessions && !parts.some((part) => part.isLoading || part.error)) return html`<${NothingWaits} />`;
  return html`<div class="inbox">
    <div class="inbox-main">
      <${AlertsPanel} alerts=${alerts} session=${session} />
      <${RemovalsPanel} removals=${removals} />
      <${Jobs} pages=${pages} mayRead=${mayRead} />
    </div>
    <div class="inbox-side">
      <${WebhooksPanel} state=${webhooks} />
      <${SessionsPanel} sessions=${sessions} />
    </div>
  </div>`;
}

function NothingWaits() {
  return html`<${Empty} icon="check" title="Nothing waits for you">
    New and changed outputs appear here until their job is approved. So do alerts, large removals of missing outputs, webhooks that fail, and sessions that expire within three days.
  <//>`;
}

function Jobs({ pages, mayRead }) {
  if (!mayRead) return html`<${NoScope} what="list jobs" scope="outputs:read" />`;
  if (!pages.items.length) {
    return html`<${Panel} title="To review"><${Empty} icon="check" title="Every job is reviewed">A job comes back when it has new or changed outputs.<//><//>`;
  }
  return html`<${Panel} flush title="To review" actions=${html`<small class="muted">oldest first</small>`}>
    <ul class="inbox-list">
      ${pages.items.map((job) => html`<${WaitingJob} key=${JSON.stringify([job.group_id, job.job_id])} job=${job} />`)}
    </ul>
    <${More} pages=${pages} />
  <//>`;
}

/** A job that waits for a review. */
function WaitingJob({ job }) {
  return html`<li>
    <a class="inbox-row" data-row href=${href(["groups", job.group_id, "review", job.job_id])}>
      <span class="inbox-name">
        <strong><${Text}>${job.job_id}<//></strong>
        <span class="muted" title=${visibleText(job.group_id)}><${Text}>${nameGroup(job.group_id, job.group_name)}<//></span>
      </span>
      <span class="inbox-when">waiting for <${Time} at=${job.waits_since} show=${lasting} /></span>
      <span class="inbox-changes">
        <${Changes} job=${job} />
      </span>
      <span class="inbox-share"><${Share} part=${job.approved} whole=${job.outputs} noun="approved" isLabelled /></span>
      <span class="inbox-review">${job.review ? html`<${LatestReview} review=${job.review} />` : "Never reviewed"}</span>
    </a>
  </li>`;
}

/** What differs from the last approved state. */
function Changes({ job }) {
  const open = job.outputs - job.approved;
  return html`
    ${job.new === null && html`<${Badge} tone="info">${number(open)} not approved<//>`}
    ${job.new > 0 && html`<${Badge} tone="info">${number(job.new)} new<//>`}
    ${job.changed.count > 0 && html`<${Badge} tone="warn">${atMost(job.changed)} changed<//>`}
    ${job.removed.count > 0 && html`<${Badge} tone="bad">${atMost(job.removed)} removed<//>`}
  `;
}

function LatestReview({ review }) {
  return html`<${StatusBadge} status=${review.status} /> <${Time} at=${review.created_at} />
    ${review.person && html` by <${Text}>${review.person}<//>`}
    ${review.comment && html`: “<${Text}>${review.comment}<//>”`}`;
}

/** Sessions that have expired, or soon will. */
function SessionsPanel({ sessions }) {
  return html`<${Panel} title="Sessions that expire" flush>
    ${sessions ? html`<${List} sessions=${sessions} />` : html`<p class="inbox-none muted">Your token lacks the scope session:read.</p>`}
  <//>`;
}

function List({ sessions }) {
  if (!sessions.sessions.length) return html`<p class="inbox-none muted">No session expires within three days.</p>`;
  return html`<ul class="inbox-list">
      ${sessions.sessions.map((one) => html`<${Session} key=${`${one.domain}/${one.profile}`} one=${one} />`)}
    </ul>
    ${!sessions.is_complete &&
    html`<p class="inbox-none muted"><a href=${href(["sessions"])}>There are more sessions</a> than this list shows.</p>`}`;
}

function Session({ one }) {
  const title = plural(one.expired + one.expiring, "record");
  return html`<li>
    <a class="inbox-row inbox-small" data-row href=${href(["sessions", one.domain], { profile: one.profile })} title=${title}>
      <span class="inbox-name">
        <strong><${Text}>${one.domain}<//></strong>
        ${one.profile !== "default" && html`<span class="muted"><${Text}>${one.profile}<//></span>`}
      </span>
      <span class="inbox-when"><${Time} at=${one.first_expiry} /></span>
      <span class="inbox-changes">
        ${one.expired > 0 && html`<${Badge} tone="bad">${number(one.expired)} expired<//>`}
        ${one.expiring > 0 && html`<${Badge} tone="warn">${number(one.expiring)} ${one.expiring === 1 ? "expires" : "expire"} soon<//>`}
      </span>
    </a>
  </li>`;
}
