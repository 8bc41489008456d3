// All sessions: the hosts and profiles with cookies or local storage, and who uses them now.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { BACKGROUND, get, jsonOf, path, remove, send } from "../api.js";
import { number, plural } from "../format.js";
import { useKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { More, usePages } from "../pages.js";
import { go, href } from "../router.js";
import { Confirm } from "../ui/dialog.js";
import { Badge, Button } from "../ui/controls.js";
import { Empty, Loaded, NoScope, Problem, notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Page, Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { ImportDialog } from "./sessions_import.js";

const REFRESH = 15_000; // of the leases
export const SOON = 3 * 86_400_000; // as in the inbox

/** Returns what the session of the console may do with sessions. */
export function rights({ scopes }) {
  return { canRead: scopes.includes("session:read"), canWrite: scopes.includes("session:write") };
}

async function loadPage(host, cursor, signal) {
  const response = await send("GET", "v1/sessions", { query: { domain: host, cursor, limit: 100 }, signal });
  const link = /<([^>]+)>/.exec(response.headers.get("link") ?? "")?.[1];
  return { items: await jsonOf(response), next: link && new URL(link).searchParams.get("cursor") };
}

export function Sessions({ session }) {
  const [isImporting, setImporting] = useState(false);
  const { canRead, canWrite } = rights(session);
  useKeys([{ keys: ["i"], label: "Import a session", run: () => canWrite && setImporting(true) }]);
  const actions = canWrite && html`<${Button} kind="primary" icon="upload" onClick=${() => setImporting(true)}>Import<//>`;
  return html`<${Page} title="Sessions" note="Logins that your scrapers use: cookies and local storage." actions=${actions}>
    ${canRead ? html`<${All} session=${session} onImport=${() => setImporting(true)} />` : NO_SCOPE}
    ${isImporting && html`<${ImportDialog} onClose=${() => setImporting(false)} onDone=${(domain, profile) => go(["sessions", domain], { profile })} />`}
  <//>`;
}

export const NO_SCOPE = html`<${NoScope} what="read sessions" scope="session:read" />`;

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
  return html`<${Empty} icon="sessions" title="No sessions yet">
    <p>Log in with your browser, copy a request as cURL or export its cookies, and import that here for your scrapers.</p>
    ${onImport && html`<${Button} kind="primary" icon="upload" onClick=${onImport}>Import a session<//>`}
  <//>`;
}

function Found({ sessions, leases }) {
  if (!sessions.length) return html`<${Empty} icon="search" title="Nothing fits the filter">Check the name of the host.<//>`;
  const rows = sessions.map((one) => ({ ...one, id: `${one.domain}/${one.profile}`, lease: leaseOf(leases, one) }));
  return html`<${Panel} flush><${Table} columns=${COLUMNS} rows=${rows} id="id" /><//>`;
}

const profile = ["Profile", (one) => html`<${Text}>${one.profile}<//>`];
const COLUMNS = [
  ["Host", (one) => html`<a class="groups-name" href=${href(["sessions", one.domain], { profile: one.profile })}><${Text}>${one.domain}<//></a>`],
  profile,
  ["Cookies", (one) => number(one.cookies), "number"],
  ["Local storage", (one) => number(one.local_storage), "number"],
  ["Expiry", (one) => html`<${Expiry} one=${one} />`],
  ["Last change", (one) => html`<${Time} at=${one.last_change} />`],
  ["In use by", ({ lease }) => (lease ? html`<${Holder} lease=${lease} />` : html`<span class="muted">–</span>`)],
];

/** The most urgent fact about the expiry of a session. */
export function Expiry({ one }) {
  const total = one.cookies + one.local_storage;
  if (one.expired) return html`<${Badge} tone="bad">${one.expired === total ? "All" : number(one.expired)} expired<//>`;
  if (one.expiring) return html`<${Badge} tone="warn">${number(one.expiring)} within a day<//>`;
  const first = one.first_expiry && html`<${Time} at=${one.first_expiry} />`;
  if (first) return new Date(one.first_expiry) - Date.now() < SOON ? html`<${Badge} tone="warn">${first}<//>` : first;
  return html`<span class="muted">none</span>`;
}

/** Returns the current leases, each with the time of its end by the clock of this browser. */
export function useLeases() {
  const isTimed = useRef(false);
  const state = useLoad(async (signal) => {
    const sent = Date.now();
    const headers = isTimed.current ? BACKGROUND : undefined;
    isTimed.current = false;
    const leases = await get("v1/sessions/leases", {}, signal, headers);
    return leases.map((lease) => ({ ...lease, ends: sent + lease.seconds * 1000 }));
  }, []);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      isTimed.current = true;
      state.reload();
    }, REFRESH);
    return () => clearInterval(timer);
  }, []);
  const current = (state.data ?? []).filter((lease) => lease.ends > now);
  useEffect(() => {
    if (!state.data?.length) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [state.data]);
  return { current, now, error: state.error, reload: state.reload };
}

/** Returns the lease that covers a session. A leading dot includes subdomains. */
export function leaseOf(leases, { domain, profile }) {
  return leases.find((lease) => {
    if (lease.profile !== profile) return false;
    return lease.domain === domain || (lease.domain.startsWith(".") && `.${domain}`.endsWith(lease.domain));
  });
}

function Holder({ lease }) {
  return html`<${Badge} tone="info">${lease.holder ? html`<${Text}>${lease.holder}<//>` : `Token ${lease.token_id}`}<//>`;
}

function left(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** The leases as a table; nothing if there are none. */
export function LeasePanel({ leases, canEnd }) {
  const [ending, setEnding] = useState(null);
  if (leases.error) return html`<${Problem} error=${leases.error} onRetry=${leases.reload} />`;
  const columns = [
    ["Host", (lease) => html`<a class="groups-name" href=${href(["sessions", lease.domain.replace(/^\./, "")], { profile: lease.profile })}><${Text}>${lease.domain}<//></a>`],
    profile,
    ["Holder", (lease) => html`<${Holder} lease=${lease} />`],
    ["Since", (lease) => html`<${Time} at=${lease.acquire_date} />`],
    ["Ends in", (lease) => left(lease.ends - leases.now), "time"],
    canEnd && ["", (lease) => html`<${Button} small kind="danger" onClick=${() => setEnding(lease)}>End lease<//>`, "buttons"],
  ];
  return html`${leases.current.length > 0 && html`<${Panel} flush title="In use now"><${Table} columns=${columns} rows=${leases.current} id="id" /><//>`}
    ${ending && html`<${EndLease} lease=${ending} leases=${leases} onClose=${() => setEnding(null)} />`}`;
}

function EndLease({ lease, leases, onClose }) {
  const end = async () => {
    try {
      await remove(path`v1/sessions/leases/${lease.id}`);
    } catch (error) {
      if (error.status !== 404) throw error; // it has ended meanwhile
    }
    leases.reload();
    notify("The lease has ended.");
  };
  return html`<${Confirm} title="End the lease" label="End lease" action=${end} onClose=${onClose}>
    <p>Another worker can then use <${Text}>${lease.domain}<//>. The holder keeps its copy of the login, but can no longer store changes.</p>
  <//>`;
}
