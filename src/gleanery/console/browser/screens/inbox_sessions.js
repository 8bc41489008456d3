// The part of the inbox about sessions that have expired, or soon will.

import { html } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { href } from "../router.js";
import { Panel } from "../shell.js";
import { Badge } from "../ui/controls.js";
import { Text, Time } from "../ui/text.js";

export function SessionsPanel({ sessions }) {
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
