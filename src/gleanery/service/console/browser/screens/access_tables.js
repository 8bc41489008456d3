// The tables of tokens, and of people who are signed in.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { Badge, Badges, Button } from "../ui/controls.js";
import { Table } from "../ui/records.js";
import { Text, Time, visibleText } from "../ui/text.js";

export const nameOf = (token) => token.name ?? `Token ${token.id}`;

export function TokenTable({ tokens, sessions, session, onRevoke }) {
  const canAudit = session.scopes.includes("audit:read");
  const columns = [
    ["Token", (token) => html`<${TokenName} token=${token} isOwn=${token.id === session.token_id} people=${peopleOf(sessions, token)} />`],
    ["Scopes", (token) => html`<${Badges} texts=${token.scopes} />`],
    ["Created", (token) => html`<${Time} at=${token.created} />`, "time"],
    ["Expires", (token) => html`<${Expiry} at=${token.expires} />`, "time"],
    ["Last use", (token) => html`<${Time} at=${token.last_used} />`, "time"],
    ["", (token) => html`${canAudit && html`<${Button} small kind="quiet" icon="audit" href=${href(["audit"], { token_id: token.id })} aria-label=${`Audit log of ${visibleText(nameOf(token))}`} >Log<//>`}
      <${Button} small kind="danger" aria-label=${`Revoke ${visibleText(nameOf(token))}`} onClick=${() => onRevoke(token)}>Revoke<//>`, "buttons"],
  ];
  return html`<${Table} class="access-tokens" columns=${columns} rows=${tokens} id="id" />`;
}

function peopleOf(sessions, token) {
  return new Set(sessions.filter((one) => one.token_id === token.id).map((one) => one.person)).size;
}

function TokenName({ token, isOwn, people }) {
  return html`<span class="access-name"><strong><${Text}>${nameOf(token)}<//></strong> ${isOwn && html`<${Badge} tone="info">Yours<//>`}</span>
    <small class="muted">${[token.name !== null && `Token ${token.id}`, people > 0 && `${plural(people, "person", "people")} signed in`].filter(Boolean).join(" · ")}</small>`;
}

const WEEK = 7 * 86400 * 1e6;

function Expiry({ at }) {
  if (at === null) return html`<span class="muted">never</span>`;
  const left = at - Date.now() * 1000;
  if (left <= 0) return html`<${Badge} tone="bad">Expired<//>`;
  return left < WEEK ? html`<${Badge} tone="warn"><${Time} at=${at} /><//>` : html`<${Time} at=${at} />`;
}

export function SessionTable({ sessions, session, tokens, onEnd }) {
  const names = new Map(tokens.map((token) => [token.id, token.name]));
  names.set(session.token_id, session.token_name);
  const columns = [
    ["Person", (one) => html`<span class="access-name"><${Text}>${one.person}<//> ${one.id === session.session_id && html`<${Badge} tone="info">This session<//>`}</span>`],
    ["Token", (one) => html`<${Text}>${names.get(one.token_id) ?? `Token ${one.token_id}`}<//>`],
    ["Signed in", (one) => html`<${Time} at=${one.created} />`, "time"],
    ["Last use", (one) => html`<${Time} at=${one.last_used} />`, "time"],
    ["", (one) => html`<${Button} small aria-label=${`End session of ${visibleText(one.person)}`} onClick=${() => onEnd(one)}>End session<//>`, "buttons"],
  ];
  return html`<${Table} columns=${columns} rows=${sessions} id="id" />`;
}
