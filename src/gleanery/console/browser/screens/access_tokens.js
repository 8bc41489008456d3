// The table of tokens.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { Badge, Button } from "../ui/controls.js";
import { Text, Time } from "../ui/text.js";

export function TokenTable({ tokens, sessions, session, onRevoke }) {
  return html`<div class="table-box">
    <table class="cards access-tokens">
      <thead>
        <tr><th>Token</th><th>Scopes</th><th>Created</th><th>Expires</th><th>Last use</th><th><span class="visually-hidden">Actions</span></th></tr>
      </thead>
      <tbody>
        ${tokens.map((token) => html`<${Row} key=${token.id} ...${{ token, onRevoke }} isOwn=${token.id === session.token_id} people=${peopleOf(sessions, token)} canAudit=${session.scopes.includes("audit:read")} />`)}
      </tbody>
    </table>
  </div>`;
}

function peopleOf(sessions, token) {
  return new Set(sessions.filter((one) => one.token_id === token.id).map((one) => one.person)).size;
}

function Row({ token, isOwn, people, canAudit, onRevoke }) {
  const name = token.name ?? `Token ${token.id}`;
  return html`<tr>
    <td>
      <span class="access-name"><strong><${Text}>${name}<//></strong> ${isOwn && html`<${Badge} tone="info">Yours<//>`}</span>
      <small class="muted">${[token.name !== null && `Token ${token.id}`, people > 0 && `${plural(people, "person", "people")} signed in`].filter(Boolean).join(" · ")}</small>
    </td>
    <td data-label="Scopes"><ul class="access-scopes">${token.scopes.map((scope) => html`<li key=${scope}><${Badge}>${scope}<//></li>`)}</ul></td>
    <td data-label="Created" class="access-time"><${Time} at=${token.created} /></td>
    <td data-label="Expires" class="access-time"><${Expiry} at=${token.expires} /></td>
    <td data-label="Last use" class="access-time"><${Time} at=${token.last_used} /></td>
    <td class="access-actions">
      ${canAudit && html`<${Button} small kind="quiet" icon="audit" href=${href(["audit"], { token_id: token.id })} aria-label=${`Audit log of ${name}`} title="Audit log" />`}
      <${Button} small kind="danger" aria-label=${`Revoke ${name}`} onClick=${() => onRevoke(token)}>Revoke<//>
    </td>
  </tr>`;
}

const WEEK = 7 * 86400 * 1e6;

function Expiry({ at }) {
  if (at === null) return html`<span class="muted">never</span>`;
  const left = at - Date.now() * 1000;
  if (left <= 0) return html`<${Badge} tone="bad">Expired<//>`;
  return left < WEEK ? html`<${Badge} tone="warn"><${Time} at=${at} /><//>` : html`<${Time} at=${at} />`;
}
