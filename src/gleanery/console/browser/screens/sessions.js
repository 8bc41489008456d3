// All sessions: the hosts and profiles with cookies or local storage, and who uses them now.

import { html, useState } from "../vendor/preact.js";
import { send } from "../api.js";
import { number, plural } from "../format.js";
import { useKeys } from "../keys.js";
import { More, usePages } from "../pages.js";
import { go, href } from "../router.js";
import { Page, Panel } from "../shell.js";
import { Badge, Button } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Text, Time } from "../ui/text.js";
import { ImportDialog } from "./sessions_import.js";
import { Holder, LeasePanel, leaseOf, useLeases } from "./sessions_leases.js";

/** Returns what the session of the console may do with sessions. */
export function rights({ scopes }) {
  return { canRead: scopes.includes("session:read"), canWrite: scopes.includes("session:write") };
}

async function loadPage(host, cursor, signal) {
  const response = await send("GET", "v1/sessions", { query: { domain: host, cursor, limit: 100 }, signal });
  const link = /<([^>]+)>/.exec(response.headers.get("link") ?? "")?.[1];
  return { items: await response.json(), next: link && new URL(link).searchParams.get("cursor") };
}

export function Sessions({ session }) {
  const [isImporting, setImporting] = useState(false);
  const { canRead, canWrite } = rights(session);
  useKeys([{ keys: ["i"], label: "Import a session", run: () => canWrite && setImporting(true) }]);
  const actions = canWrite && html`<${Button} kind="primary" icon="upload" onClick=${() => setImporting(true)}>Import<//>`;
  return html`<${Page} title="Sessions" note="Logins that your scrapers use: cookies and local storage." actions=${actions}>
    ${canRead ? html`<${All} session=${session} onImport=${() => setImporting(true)} />` : html`<${NoScope} />`}
    ${isImporting && html`<${ImportDialog} onClose=${() => setImporting(false)} onDone=${(domain, profile) => go(["sessions", domain], { profile })} />`}
  <//>`;
}

export function NoScope() {
  return html`<${Panel}><${Empty} icon="sessions" title="Your token cannot read sessions">
    Sign in with a token that has the scope <code>session:read</code>.
  <//><//>`;
}

function All({ session, onImport }) {
  const [host, setHost] = useState("");
  const [text, setText] = useState("");
  const pages = usePages((cursor, signal) => loadPage(host, cursor, signal), [host]);
  const leases = useLeases();
  const { canWrite } = rights(session);
  const choose = (value) => {
    setHost(value);
    setText(value);
  };
  return html`<${LeasePanel} leases=${leases} canEnd=${canWrite} />
    <${Loaded} state=${pages}>
      ${(sessions) =>
        sessions.length || host
          ? html`<${Filter} ...${{ text, host, pages, setText, choose }} />
              <${Found} sessions=${sessions.filter(fits(text))} leases=${leases.current} />
              <${More} pages=${pages} />`
          : html`<${None} onImport=${canWrite ? onImport : null} />`}
    <//>`;
}

function fits(text) {
  const wanted = text.trim().toLowerCase();
  return ({ domain, profile }) => domain.includes(wanted) || profile.toLowerCase().includes(wanted);
}

/** Filters what is loaded. The service finds a host of later pages by its whole name. */
function Filter({ text, host, pages, setText, choose }) {
  const wanted = text.trim();
  const submit = (event) => {
    event.preventDefault();
    if (pages.hasMore && wanted) choose(wanted);
  };
  return html`<form class="sessions-filter" role="search" onSubmit=${submit}>
    <span class="sessions-search">
      <${Icon} name="search" />
      <input type="search" aria-label="Filter by host or profile" placeholder="Filter by host or profile" autocomplete="off"
        spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} />
    </span>
    ${host
      ? html`<${Button} kind="quiet" icon="close" onClick=${() => choose("")}>Show all hosts<//>`
      : pages.hasMore && wanted && html`<${Button} type="submit">Find this exact host<//>
        <span class="hint">The filter looks at the ${plural(pages.data.length, "session")} loaded so far.</span>`}
  </form>`;
}

function None({ onImport }) {
  return html`<${Panel}><${Empty} icon="sessions" title="No sessions yet">
    <p>Log in with your browser, copy a request as cURL or export its cookies, and import that here. Scrapers then get the login from the service.</p>
    ${onImport && html`<p class="sessions-start"><${Button} kind="primary" icon="upload" onClick=${onImport}>Import a session<//></p>`}
  <//><//>`;
}

function Found({ sessions, leases }) {
  if (!sessions.length) return html`<${Panel}><${Empty} icon="search" title="Nothing fits the filter">Check the name of the host.<//><//>`;
  return html`<${Panel} flush><div class="table-box">
    <table class="cards">
      <thead>
        <tr><th>Host</th><th>Profile</th><th class="number">Cookies</th><th class="number">Local storage</th><th>Expiry</th><th>Last change</th><th>In use by</th></tr>
      </thead>
      <tbody>${sessions.map((one) => html`<${Row} key=${`${one.domain}/${one.profile}`} one=${one} lease=${leaseOf(leases, one)} />`)}</tbody>
    </table>
  </div><//>`;
}

function Row({ one, lease }) {
  return html`<tr>
    <td><a class="sessions-host" href=${href(["sessions", one.domain], { profile: one.profile })}><${Text}>${one.domain}<//></a></td>
    <td data-label="Profile"><${Text}>${one.profile}<//></td>
    <td class="number" data-label="Cookies">${number(one.cookies)}</td>
    <td class="number" data-label="Local storage">${number(one.local_storage)}</td>
    <td data-label="Expiry"><${Expiry} one=${one} /></td>
    <td data-label="Last change"><${Time} at=${one.last_change} /></td>
    <td data-label="In use by">${lease ? html`<${Holder} lease=${lease} />` : html`<span class="muted">–</span>`}</td>
  </tr>`;
}

/** The most urgent fact about the expiry of a session. */
export function Expiry({ one }) {
  const total = one.cookies + one.local_storage;
  if (one.expired) return html`<${Badge} tone="bad">${one.expired === total ? "All" : number(one.expired)} expired<//>`;
  if (one.expiring) return html`<${Badge} tone="warn">${number(one.expiring)} within a day<//>`;
  if (one.first_expiry) return html`<${Time} at=${one.first_expiry} />`;
  return html`<span class="muted">none</span>`;
}
