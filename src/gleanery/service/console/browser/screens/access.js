// Access: the tokens of the organization, who is signed in with them, and the own session.

import { html, useState } from "../vendor/preact.js";
import { get, path, post, remove } from "../api.js";
import { useKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { List, usePages } from "../pages.js";
import { forgetKey } from "../session_key.js";
import { Confirm } from "../ui/dialog.js";
import { Badges, Button } from "../ui/controls.js";
import { Loaded, NoScope, notify } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Text, Time } from "../ui/text.js";
import { CreateToken } from "./access_create.js";
import { SessionTable, TokenTable, nameOf } from "./access_tables.js";

const SCOPE = "tokens:write";

export function Access({ session }) {
  const isAdmin = session.scopes.includes(SCOPE);
  const [dialog, setDialog] = useState(null);
  const sessions = useLoad(async (signal) => (await get("console/api/sessions", {}, signal)).sessions, []);
  const tokens = usePages((before, signal) => (isAdmin ? loadTokens(before, signal) : NO_TOKENS), []);
  const create = () => setDialog({ name: "create" });
  useKeys(isAdmin ? [{ keys: ["n"], label: "Create a token", run: create }] : []);
  const reload = () => {
    tokens.reload();
    sessions.reload();
  };
  const button = isAdmin && html`<${Button} kind="primary" icon="plus" disabled=${!tokens.data} onClick=${create}>Create token<//>`;
  return html`<${Page} title="Access" note="Tokens give scrapers, clients and people access to this organization." actions=${button}>
    <${OwnSession} session=${session} sessions=${sessions.data} onEverywhere=${() => setDialog({ name: "everywhere" })} />
    ${isAdmin
      ? html`<${List} title="Tokens" pages=${tokens}>
          ${(list) => html`<${TokenTable} tokens=${list} sessions=${sessions.data ?? []} session=${session} onRevoke=${(token) => setDialog({ name: "revoke", token })} />`}
        <//>`
      : html`<${NoScope} what="list or create tokens" scope=${SCOPE} />`}
    <${Loaded} state=${sessions}>
      ${(list) => html`<${Panel} title="Signed in" flush><${SessionTable} sessions=${list} session=${session} tokens=${tokens.items} onEnd=${(one) => setDialog({ name: "end", session: one })} /><//>`}
    <//>
    <${Dialogs} dialog=${dialog} session=${session} scopes=${tokens.first?.scopes} onClose=${() => setDialog(null)} onDone=${reload} />
  <//>`;
}

const NO_TOKENS = { items: [], next: null, scopes: {} };

async function loadTokens(before, signal) {
  const page = await get("console/api/tokens", { before }, signal);
  return { items: page.tokens, next: page.next_before, scopes: page.scopes };
}

function OwnSession({ session, sessions, onEverywhere }) {
  const own = sessions?.find((one) => one.id === session.session_id);
  return html`<${Panel} class="access-own">
    <div>
      <h2>You are signed in as <${Text}>${session.person}<//></h2>
      <p class="muted">
        Your token is <${Text}>${session.token_name ?? `number ${session.token_id}`}<//>, which
        ${session.expires ? html` expires <${Time} at=${session.expires} />` : " does not expire"}.${own && html` You signed in <${Time} at=${own.created} />.`}
      </p>
    </div>
    <${Button} icon="signout" onClick=${onEverywhere}>Sign out everywhere<//>
    <${Badges} texts=${session.scopes} label="Scopes of your token" />
  <//>`;
}

function Dialogs({ dialog, session, scopes, onClose, onDone }) {
  if (!dialog) return null;
  const properties = { ...dialog, onClose, onDone, session };
  if (dialog.name === "create") return html`<${CreateToken} ...${properties} scopes=${scopes} />`;
  if (dialog.name === "revoke") return html`<${Revoke} ...${properties} own=${session} />`;
  if (dialog.name === "end") return html`<${EndSession} ...${properties} session=${dialog.session} own=${session} />`;
  return html`<${Everywhere} onClose=${onClose} />`;
}

function Revoke({ token, own, onClose, onDone }) {
  const isOwn = token.id === own.token_id;
  const action = async () => {
    await remove(path`console/api/tokens/${token.id}`);
    if (isOwn) return forgetKey("You have revoked the token of your session: sign in with another one");
    notify("The token is revoked.");
    onDone();
  };
  return html`<${Confirm} title="Revoke the token" label="Revoke" action=${action} onClose=${onClose}>
    <p><strong><${Text}>${nameOf(token)}<//></strong> stops working within seconds, and everybody who is signed in with it is signed out. This cannot be undone.</p>
    ${isOwn && html`<p class="warning">This is your own token: your session ends at once.</p>`}
  <//>`;
}

function EndSession({ session, own, onClose, onDone }) {
  const action = async () => {
    await remove(path`console/api/sessions/${session.id}`);
    if (session.id === own.session_id) return forgetKey();
    notify("The session has ended.");
    onDone();
  };
  return html`<${Confirm} title="End the session" label="End session" action=${action} onClose=${onClose}>
    <p><strong><${Text}>${session.person}<//></strong> is signed out, and can sign in again with the token. To prevent that, revoke the token.</p>
  <//>`;
}

function Everywhere({ onClose }) {
  const action = async () => {
    await post("console/api/logout", { everywhere: true });
    forgetKey();
  };
  return html`<${Confirm} title="Sign out everywhere" label="Sign out everywhere" action=${action} onClose=${onClose}>
    <p>All sessions of your token end: this one, and those of others who use the token. The token stays valid.</p>
  <//>`;
}
