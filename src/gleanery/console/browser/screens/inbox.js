// The inbox: jobs to review, expiring sessions and field drift.

import { html, useEffect } from "../vendor/preact.js";
import { get } from "../api.js";
import { plural } from "../format.js";
import { usePages } from "../pages.js";
import { useRowKeys } from "../row_keys.js";
import { Page, Panel } from "../shell.js";
import { Button } from "../ui/controls.js";
import { Empty, Loading, Problem } from "../ui/feedback.js";
import { DriftPanel, useDrift } from "./inbox_drift.js";
import { WaitingJob } from "./inbox_job.js";
import { SessionsPanel } from "./inbox_sessions.js";

export function Inbox({ session }) {
  const pages = usePages(load, []);
  const mayRead = session.scopes.includes("outputs:read");
  const drift = useDrift(mayRead);
  useRowKeys();
  useReloadOnReturn(pages.reload);
  const refresh = html`<${Button} icon="refresh" isBusy=${pages.isLoading} onClick=${() => (pages.reload(), drift.reload())}>Refresh<//>`;
  return html`<${Page} title="Inbox" note=${note(pages)} actions=${refresh}>
    <${Problem} error=${pages.error} onRetry=${pages.reload} />
    ${pages.first ? html`<${Sections} ...${{ pages, drift, mayRead }} />` : pages.isLoading && html`<${Loading} />`}
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

function Sections({ pages, drift, mayRead }) {
  const { sessions } = pages.first;
  const isEmpty = !pages.items.length && !sessions?.sessions.length && !drift.jobs.length && !drift.error;
  if (isEmpty && mayRead && sessions && !drift.isLoading) return html`<${NothingWaits} />`;
  return html`<div class="inbox">
    <${Jobs} pages=${pages} mayRead=${mayRead} />
    <div class="inbox-side">
      <${DriftPanel} drift=${drift} mayRead=${mayRead} />
      <${SessionsPanel} sessions=${sessions} />
    </div>
  </div>`;
}

function NothingWaits() {
  return html`<${Panel}>
    <${Empty} icon="check" title="Nothing waits for you">
      New and changed outputs appear here until their job is approved. So do sessions that expire within three days, and fields that a scrape fills more or less often than before.
    <//>
  <//>`;
}

function Jobs({ pages, mayRead }) {
  if (!mayRead) {
    return html`<${Panel} title="To review"><p class="muted">Your token lacks the scope outputs:read, so jobs are not shown.</p><//>`;
  }
  if (!pages.items.length) {
    return html`<${Panel} title="To review"><${Empty} icon="check" title="Every job is reviewed">A job comes back when it has new or changed outputs.<//><//>`;
  }
  return html`<${Panel} flush title="To review" actions=${html`<small class="muted">oldest first</small>`}>
    <ul class="inbox-list">
      ${pages.items.map((job) => html`<${WaitingJob} key=${JSON.stringify([job.group_id, job.job_id])} job=${job} />`)}
    </ul>
    ${pages.hasMore && html`<div class="inbox-more"><${Button} isBusy=${pages.isLoading} onClick=${pages.more}>Show more<//></div>`}
  <//>`;
}

/** Reloads when the person comes back to this tab: others may have reviewed meanwhile. */
function useReloadOnReturn(reload) {
  useEffect(() => {
    const listener = () => document.visibilityState === "visible" && reload();
    document.addEventListener("visibilitychange", listener);
    return () => document.removeEventListener("visibilitychange", listener);
  }, []);
}
