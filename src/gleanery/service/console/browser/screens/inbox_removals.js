// The part of the inbox about removals that are held until a person decides.

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { percent, plural } from "../format.js";
import { More, usePages } from "../pages.js";
import { href } from "../router.js";
import { Badge } from "../ui/controls.js";
import { Problem } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, Time, visibleText } from "../ui/text.js";
import { nameGroup } from "./group_page.js";

/** Returns the held removals as usePages does; none if the token may not read outputs. */
export function useRemovals(mayRead) {
  return usePages(async (next, signal) => {
    if (!mayRead) return { items: [], next: null };
    const page = await get("console/api/inbox/removals", { before: next }, signal);
    return { items: page.removals, next: page.next };
  }, [mayRead]);
}

/** Nothing, unless a removal is held: most organizations never have one. */
export function RemovalsPanel({ removals }) {
  if (!removals.items.length) return html`<${Problem} error=${removals.error} onRetry=${removals.reload} />`;
  return html`<${Panel} flush title="Removals to decide" actions=${html`<small class="muted">newest first</small>`}>
    <ul class="inbox-list">${removals.items.map((one) => html`<${Removal} key=${one.run_id} one=${one} />`)}</ul>
    <${More} pages=${removals} />
  <//>`;
}

function Removal({ one }) {
  const share = percent(Math.round((100 * one.removable) / Math.max(one.outputs, 1)) / 100);
  return html`<li>
    <a class="inbox-row" data-row href=${href(["groups", one.group_id, "runs", one.run_id])}>
      <span class="inbox-name">
        <strong><${Text}>${one.job_id}<//></strong>
        <span class="muted" title=${visibleText(one.group_id)}><${Text}>${nameGroup(one.group_id, one.group_name)}<//></span>
      </span>
      <span class="inbox-when">since <${Time} at=${one.finished_at} /></span>
      <span class="inbox-changes"><${Badge} tone="bad">${plural(one.removable, "output")} to remove<//></span>
      <span class="inbox-share">${share} of the job</span>
    </a>
  </li>`;
}
