// The import of a session: a document is pasted or dropped, previewed without values, and stored.

import { html, useRef, useState } from "../vendor/preact.js";
import { jsonOf, send } from "../api.js";
import { bytes, number, plural } from "../format.js";
import { useAction, useLoad } from "../load.js";
import { Button, Checkbox, Field, SelectField, TextField } from "../ui/controls.js";
import { Dialog } from "../ui/dialog.js";
import { Loading, Problem, notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { FORMATS, Losses, OPTIONS } from "./sessions_export.js";

const IMPORT = "v1/sessions/import";
const PAUSE = 300; // after the last key of an option
const MAX_HOSTS = 50;
const CHANGES = [["created", "New"], ["updated", "Changed"], ["unchanged", "Unchanged"], ["deleted", "Deleted"]];
const UNKNOWN = { message: "The format is not recognised. Choose it above, if you know it." };
const NEEDS_PAGE = { message: "These cookies do not say which site they are for. Enter the address of the page." };

/** onDone(domain, profile) is called after an import, with the first host of the document. */
export function ImportDialog({ profile = "default", onClose, onDone }) {
  const [source, setSource] = useState(null);
  const [options, setOptions] = useState({ profile, format: "auto", url: "", replace: false });
  const preview = usePreview(source, options);
  const store = useAction(async () => {
    const { result, etag } = preview.data;
    try {
      await sendDocument(source, options, { headers: { "if-match": etag } });
    } catch (error) {
      if (error.status === 412) preview.reload(); // somebody else changed the session
      throw error;
    }
    setSource(null); // the document is a login, so it is not kept
    notify(`${plural(result.records.length, "record")} imported.`);
    onClose();
    onDone(result.records[0]?.domain.replace(/^\./, ""), result.profile);
  });
  const isReady = preview.data && !preview.isLoading && preview.data.result.records.length > 0;
  const actions = html`<${Button} onClick=${onClose}>Cancel<//>
    ${source && html`<${Button} kind="primary" icon="upload" isBusy=${store.isBusy} disabled=${!isReady} onClick=${() => store.run()}>Import<//>`}`;
  return html`<${Dialog} wide title="Import a session" onClose=${onClose} actions=${actions}>
    ${source
      ? html`<${Preview} ...${{ source, options, setOptions, preview }} error=${store.error} onBack=${() => setSource(null)} />`
      : html`<${Source} onSource=${setSource} />`}
  <//>`;
}

/** Asks the service what an import would do. The result has no values. */
function usePreview(source, options) {
  return useLoad(async (signal) => {
    if (!source) return null;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (signal.aborted) return null;
    const response = await sendDocument(source, options, { signal }, { dry_run: "true" });
    return { result: await jsonOf(response), etag: response.headers.get("etag") };
  }, [source, ...Object.values(options)]);
}

function sendDocument(source, { profile, format, url, replace }, request, more = {}) {
  const query = { format, profile: profile.trim(), url: url.trim(), replace: replace ? "true" : "", ...more };
  return send("POST", IMPORT, { query, text: source.body, ...request });
}

/** onSource gets { label, size, body }. A pasted text goes there at once, and is never in the page. */
function Source({ onSource }) {
  const [isOver, setOver] = useState(false);
  const text = useRef();
  const take = (data) => {
    const file = data.files[0];
    const pasted = data.getData("text/plain");
    if (file) onSource(fromFile(file));
    else if (pasted.trim()) onSource(fromText(pasted));
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer);
  };
  const paste = (event) => {
    event.preventDefault();
    take(event.clipboardData);
  };
  const typed = () => {
    const { value } = text.current;
    text.current.value = "";
    if (value.trim()) onSource(fromText(value));
    else text.current.focus();
  };
  const over = (event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<div class=${`sessions-drop ${isOver ? "over" : ""}`} onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      <span class="sessions-drop-icon"><${Icon} name="upload" /></span>
      <p><strong>Drop a file here</strong> or <${FileButton} onFile=${(file) => onSource(fromFile(file))} /></p>
      <${Field} label="Or paste text" class="sessions-paste">
        ${(attributes) => html`<textarea ...${attributes} ref=${text} rows="3" autocomplete="off" autocapitalize="off" spellcheck=${false}
          placeholder="curl … -H 'Cookie: sid=…'" onPaste=${paste}></textarea>`}
      <//>
      <${Button} onClick=${typed}>Preview<//>
    </div>
    <div>
      <h3>Supported formats</h3>
      <ul class="sessions-formats">${OPTIONS.map(([name, title]) => html`<li key=${name} class="badge">${title}</li>`)}</ul>
    </div>
    <p class="hint">The document is sent only to this service. The preview shows no values, and nothing is stored before you confirm.</p>`;
}

function FileButton({ onFile }) {
  const input = useRef();
  const choose = (event) => event.target.files[0] && onFile(event.target.files[0]);
  return html`<input ref=${input} type="file" hidden onChange=${choose} />
    <${Button} small icon="file" onClick=${() => input.current.click()}>Choose a file<//>`;
}

function fromFile(file) {
  return { label: file.name, size: bytes(file.size), body: file };
}

function fromText(text) {
  return { label: "Pasted text", size: bytes(new Blob([text]).size), body: text };
}

function Preview({ source, options, setOptions, preview, error, onBack }) {
  const set = (name) => (value) => setOptions({ ...options, [name]: value });
  const problem = preview.error;
  const missingUrl = problem?.of?.("url");
  const isUnknown = options.format === "auto" && problem?.message.startsWith("The format is not known");
  const explained = isUnknown ? UNKNOWN : missingUrl && !options.url ? NEEDS_PAGE : null;
  return html`<div class="sessions-source">
      <${Icon} name="file" /><strong><${Text}>${source.label}<//></strong><span class="muted">${source.size}</span>
      <${Button} small kind="quiet" onClick=${onBack}>Use another<//>
    </div>
    <div class="sessions-options">
      <${TextField} label="Profile" hint="The account at the site, if there are several." placeholder="default" maxlength="200"
        value=${options.profile} onValue=${set("profile")} error=${problem?.of?.("profile")} />
      <${SelectField} label="Format" value=${options.format} onValue=${set("format")} options=${[["auto", "Recognise automatically"], ...OPTIONS]} />
      ${(missingUrl || options.url) && html`<${TextField} label="Page" hint="Address of the page that the cookies belong to." type="url"
        value=${options.url} onValue=${set("url")} error=${missingUrl && options.url ? missingUrl : undefined} />`}
    </div>
    <${Checkbox} label="Delete the other records of these hosts" checked=${options.replace} onValue=${set("replace")} />
    ${problem && !preview.isLoading && html`<${Problem} error=${explained ?? problem} onRetry=${explained ? undefined : preview.reload} />`}
    <${Problem} error=${error} />
    ${preview.data ? html`<${Result} result=${preview.data.result} isLoading=${preview.isLoading} />` : preview.isLoading && html`<${Loading} label="Reading" />`}`;
}

function Result({ result, isLoading }) {
  const { cookies, local_storage: entries, records, losses } = result;
  const kept = records.filter((record) => record.change !== "deleted");
  const expired = kept.filter((record) => record.expires && new Date(record.expires) <= Date.now()).length;
  return html`<section class=${`sessions-result ${isLoading ? "stale" : ""}`} aria-label="Preview" aria-busy=${isLoading ? "true" : "false"}>
    <p><strong>${FORMATS[result.format]?.title ?? result.format}</strong>:
      ${" "}${plural(kept.filter((one) => one.kind === "cookie").length, "cookie")} and
      ${" "}${plural(kept.filter((one) => one.kind === "local_storage").length, "local-storage entry", "local-storage entries")}
    </p>
    <dl class="sessions-counts">
      ${CHANGES.map(([name, label]) => {
        const amount = cookies[name] + entries[name];
        return html`<div key=${name} class=${amount ? name : "zero"}><dt>${label}</dt><dd>${number(amount)}</dd></div>`;
      })}
    </dl>
    ${!records.length && html`<p class="problem">The document has no cookies and no local storage.</p>`}
    ${expired > 0 && html`<p class="warning">${plural(expired, "record has", "records have")} expired. Scrapers do not get expired records.</p>`}
    <${Hosts} records=${kept} />
    <${Losses} losses=${losses} />
  </section>`;
}

function Hosts({ records }) {
  const hosts = [...byHost(records).values()];
  if (!hosts.length) return null;
  return html`<div class="sessions-hosts" role="region" aria-label="Hosts" tabindex="0"><${Table} columns=${COLUMNS} rows=${hosts.slice(0, MAX_HOSTS)} id="host" /></div>
    ${hosts.length > MAX_HOSTS && html`<p class="hint">and ${plural(hosts.length - MAX_HOSTS, "more host")}</p>`}`;
}

const COLUMNS = [
  ["Host", ({ host }) => html`<${Text}>${host}<//>`],
  ["Cookies", ({ cookie }) => number(cookie), "number"],
  ["Local storage", (one) => number(one.local_storage), "number"],
  ["First expiry", ({ first }) => (first ? html`<${Time} at=${first} />` : html`<span class="muted">none</span>`)],
];

function byHost(records) {
  const hosts = new Map();
  for (const { domain, kind, expires } of records) {
    const host = domain.replace(/^\./, "");
    const sums = hosts.get(host) ?? { host, cookie: 0, local_storage: 0, first: null };
    sums[kind] += 1;
    if (expires && (!sums.first || expires < sums.first)) sums.first = expires;
    hosts.set(host, sums);
  }
  return hosts;
}
