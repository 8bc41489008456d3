// The audit log, newest first: who did what, and when.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { fullTime } from "../format.js";
import { More, NoMatch, filledPage, usePages } from "../pages.js";
import { pushQuery } from "../router.js";
import { Button, SelectField, TextField } from "../ui/controls.js";
import { Empty, Loaded, NoScope } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { ACTIONS, Sentence, nameOf } from "./audit_sentences.js";

export function Audit({ query, session }) {
  if (session.scopes.includes("audit:read")) return html`<${Log} query=${query} />`;
  return html`<${Page} title="Audit"><${NoScope} what="read the audit log" scope="audit:read" /><//>`;
}

function Log({ query }) {
  const filter = { action: query.action, person: query.person, token_id: query.token_id };
  const pages = usePages((before, signal) => loadPage(filter, before, signal), Object.values(filter));
  const isFiltered = Object.values(filter).some(Boolean);
  return html`<${Page} title="Audit" note="Who signed in, used session values, reviewed, downloaded, changed settings or webhooks, and created or revoked tokens.">
    <${Filters} query=${query} isFiltered=${isFiltered} />
    <${Loaded} state=${pages}>
      ${(entries) =>
        entries.length
          ? html`<${Panel} flush><${Table} class="audit-log" columns=${COLUMNS} rows=${entries} id="id" /><${More} pages=${pages} /><//>`
          : isFiltered ? html`<${NoMatch} pages=${pages} noun="entry" nouns="entries" />` : NOTHING}
    <//>
  <//>`;
}

function loadPage(filter, next, signal) {
  return filledPage(async (before) => {
    const page = await get("console/api/audit", { ...filter, before }, signal);
    return { items: page.entries.map((entry) => ({ ...entry, names: page.token_names })), next: page.next_before };
  }, next);
}

const NOTHING = html`<${Empty} icon="audit" title="The audit log is empty">Entries appear when somebody signs in, reads session values, or reviews a job.<//>`;

function Filters({ query, isFiltered }) {
  const [person, setPerson] = useState(query.person ?? "");
  useEffect(() => setPerson(query.person ?? ""), [query.person]); // Back undoes a filter
  const change = (part) => pushQuery({ ...query, ...part });
  const submit = (event) => {
    event.preventDefault();
    change({ person });
  };
  const clear = () => {
    setPerson("");
    pushQuery({});
  };
  const options = [["", "All actions"], ...Object.entries(ACTIONS)];
  return html`<form class="filters" role="search" aria-label="Filters" onSubmit=${submit}>
    <${SelectField} label="Action" value=${query.action ?? ""} onValue=${(action) => change({ action })} options=${options} />
    <${TextField} label="Person" placeholder="Part of the name" maxlength="100" value=${person} onValue=${setPerson} onChange=${() => change({ person })} />
    <${TextField} label="Token" placeholder="Number" inputmode="numeric" pattern="[1-9][0-9]{0,15}" title="The number of a token" value=${query.token_id ?? ""} onChange=${(event) => event.target.validity.valid && change({ token_id: event.target.value })} />
    ${isFiltered && html`<${Button} kind="quiet" icon="close" onClick=${clear}>Clear<//>`}
  </form>`;
}

const COLUMNS = [
  ["What happened", (entry) => html`<${Sentence} entry=${entry} />`],
  ["Token", (entry) => (entry.token_id === null ? "Command line" : html`<${Text}>${nameOf(entry.token_id, entry.names)}<//>`), "muted"],
  ["When", (entry) => html`<${Time} at=${entry.id} show=${fullTime} />`, "time"],
];
