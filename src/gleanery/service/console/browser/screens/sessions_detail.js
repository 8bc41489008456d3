// One session: its facts, its lease, its records, and what can be done with it.

import { html, useState } from "../vendor/preact.js";
import { get, remove } from "../api.js";
import { number, plural } from "../format.js";
import { useKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { go, href } from "../router.js";
import { Button, Tabs } from "../ui/controls.js";
import { Confirm } from "../ui/dialog.js";
import { Empty, Loaded, notify } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Text, Time } from "../ui/text.js";
import { Expiry, LeasePanel, NO_SCOPE, leaseOf, rights, useLeases } from "./sessions.js";
import { ExportDialog } from "./sessions_export.js";
import { ImportDialog } from "./sessions_import.js";
import { Records } from "./sessions_records.js";

const CRUMBS = [["Sessions", ["sessions"]]];

export function SessionDetail({ domain, query, session }) {
  if (rights(session).canRead) return html`<${Detail} ...${{ domain, query, session }} />`;
  return html`<${Page} title=${domain} crumbs=${CRUMBS}>${NO_SCOPE}<//>`;
}

function Detail({ domain, query, session }) {
  const state = useLoad((signal) => get("v1/sessions", { domain, limit: 200 }, signal), [domain]);
  const [dialog, setDialog] = useState(null);
  const { canWrite } = rights(session);
  const found = state.data ?? [];
  const names = found.map((one) => one.profile);
  const profile = query.profile ?? (names.includes("default") ? "default" : names[0]) ?? "default";
  const one = found.find((each) => each.profile === profile);
  useKeys([
    { keys: ["i"], label: "Import into this profile", run: () => canWrite && setDialog("import") },
    { keys: ["e"], label: "Export this session", run: () => one && setDialog("export") },
  ]);
  const actions = html`
    ${one && html`<${Button} icon="download" onClick=${() => setDialog("export")}>Export<//>`}
    ${canWrite && html`<${Button} icon="upload" onClick=${() => setDialog("import")}>Import<//>`}
    ${one && canWrite && html`<${Button} kind="danger" icon="trash" onClick=${() => setDialog("delete")}>Delete<//>`}`;
  const tabs = (names.length > 1 || (names[0] && names[0] !== "default")) && html`<${Profiles} ...${{ domain, names, profile }} />`;
  return html`<${Page} title=${domain} crumbs=${CRUMBS} note=${html`Profile <${Text}>${profile}<//>`} actions=${actions} tabs=${tabs}>
    <${Loaded} state=${state}>
      ${() => one ? html`<${Content} key=${`${profile} ${one.last_change}`} one=${one} canWrite=${canWrite} />` : html`<${Missing} canWrite=${canWrite} />`}
    <//>
    <${Dialogs} ...${{ dialog, one, domain, profile, reload: state.reload, onClose: () => setDialog(null) }} />
  <//>`;
}

function Profiles({ domain, names, profile }) {
  const tabs = names.map((name) => ({ label: name, href: href(["sessions", domain], { profile: name }), isCurrent: name === profile }));
  return html`<${Tabs} label="Profiles" tabs=${tabs} />`;
}

function Missing({ canWrite }) {
  return html`<${Empty} icon="sessions" title="There is no session for this host and profile">
    ${canWrite ? "Import one, or go back to the list." : "It was deleted, or it has another name."}
  <//>`;
}

function Content({ one, canWrite }) {
  const leases = useLeases();
  const lease = leaseOf(leases.current, one);
  return html`<${Facts} one=${one} />
    <${LeasePanel} leases=${{ ...leases, current: lease ? [lease] : [] }} canEnd=${canWrite} />
    <${Records} one=${one} />`;
}

function Facts({ one }) {
  return html`<dl class="sessions-facts">
    <div><dt>Cookies</dt><dd>${number(one.cookies)}</dd></div>
    <div><dt>Local storage</dt><dd>${number(one.local_storage)}</dd></div>
    <div><dt>Expiry</dt><dd><${Expiry} one=${one} /></dd></div>
    <div><dt>Last change</dt><dd><${Time} at=${one.last_change} /></dd></div>
  </dl>`;
}

function Dialogs({ dialog, one, domain, profile, reload, onClose }) {
  const imported = (first, into) => {
    reload();
    go(["sessions", first ?? domain], { profile: into });
  };
  if (dialog === "import") return html`<${ImportDialog} profile=${profile} onClose=${onClose} onDone=${imported} />`;
  if (dialog === "export") return html`<${ExportDialog} domain=${domain} profile=${profile} onClose=${onClose} />`;
  if (dialog === "delete" && one) return html`<${Delete} one=${one} onClose=${onClose} />`;
  return null;
}

function Delete({ one, onClose }) {
  const action = async () => {
    const { deleted } = await remove("v1/sessions", { domain: one.domain, profile: one.profile });
    notify(`${plural(deleted, "record")} deleted.`);
    go(["sessions"]);
  };
  return html`<${Confirm} title="Delete the session" label="Delete session" action=${action} onClose=${onClose}>
    <p>
      ${plural(one.cookies, "cookie")} and ${plural(one.local_storage, "local-storage entry", "local-storage entries")} of
      <strong><${Text}>${one.domain}<//></strong> in the profile <strong><${Text}>${one.profile}<//></strong> are deleted.
      Scrapers then have no login for this host. Leases of it end. This cannot be undone.
    </p>
  <//>`;
}
