// A button that exports a group: a file to download, a link for tools, and the command that does the same.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { SERVICE, get, path, post } from "../api.js";
import { saveAny } from "../download.js";
import { bytes } from "../format.js";
import { useAction, useLoad } from "../load.js";
import { Button, Choice, TextField } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Dialog } from "../ui/dialog.js";
import { Problem, notify } from "../ui/feedback.js";
import { Facts } from "../ui/records.js";
import { Text, visibleText } from "../ui/text.js";
import { FILTERS, OF_PRESENT, textOf } from "./outputs_filters.js";

const FORMATS = [["csv", "CSV"], ["jsonl", "JSON lines"], ["parquet", "Parquet"]];
const ABOUT = {
  csv: "For spreadsheets. One column for each field; texts that look like formulas are made harmless.",
  jsonl: "For programs. One output per line, exactly as it was stored.",
  parquet: "For DuckDB, pandas and other tools. Columns keep their types.",
};
const VIEWS = [["full", "All outputs"], ["approved", "Approved versions"]];
const VIEW_ABOUT = {
  full: "Each output as it is now.",
  approved: "Each output in its last approved version, also if it has a newer value.",
};
const DOWNLOAD_SECONDS = 120; // the link is checked when the download starts
const LINK_SECONDS = 3600;

/** filters: as in the query of the Outputs screen. small: one of several, which says its group. */
export function ExportButton({ group, filters = {}, small }) {
  const [isOpen, setOpen] = useState(false);
  return html`<${Button} icon="download" small=${small} aria-label=${small && `Export ${visibleText(group)}`} onClick=${() => setOpen(true)}>Export<//>
    ${isOpen && html`<${ExportDialog} group=${group} filters=${filters} onClose=${() => setOpen(false)} />`}`;
}

function ExportDialog({ group, filters, onClose }) {
  const [format, setFormat] = useState("csv");
  const [view, setView] = useState(filters.view ?? "full");
  const formats = useLoad((signal) => get("console/api/session", {}, signal), []).data?.export_formats;
  const options = FORMATS.map(([key, text]) => [key, text, formats && !formats.includes(key)]);
  const query = queryOf(filters, format, view);
  const createLink = async (seconds) =>
    (await post(path`v1/exports/${group}/links`, undefined, { query: { ...query, valid_seconds: seconds } })).url;
  const [size, setSize] = useState(0);
  const controller = useRef(new AbortController());
  useEffect(() => () => controller.current.abort(), []);
  const download = useAction(async () => {
    setSize(0);
    const options = { createLink: () => createLink(DOWNLOAD_SECONDS), onSize: setSize, signal: controller.current.signal };
    const isSaved = await saveAny(path`v1/exports/${group}`, fileName(group, format), query, options);
    notify(isSaved ? "The file is saved." : "The file is large: your browser shows its progress.");
    onClose();
  });
  const actions = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind="primary" icon="download" isBusy=${download.isBusy} onClick=${download.run}>Download<//>`;
  return html`<${Dialog} title="Export" onClose=${onClose} actions=${actions}>
    <${Option} label="Format" value=${format} onValue=${setFormat} options=${options} about=${ABOUT[format]} />
    ${options.some(([, , isOff]) => isOff) && html`<p class="hint">Parquet needs a library that the service does not have. Ask the operator to install the extra <code>parquet</code>.</p>`}
    <${Option} label="Outputs" value=${view} onValue=${setView} options=${VIEWS} about=${VIEW_ABOUT[view]} />
    <${FilterList} group=${group} filters=${filters} view=${view} />
    ${download.isBusy && html`<p class="hint">${size ? `${bytes(size)} received` : "The service writes the file"} …</p>`}
    <${Problem} error=${download.error} />
    <details class="export-more">
      <summary>For scripts and tools</summary>
      ${query.missing ? html`<p class="hint">The command has no option for missing outputs.</p>` : html`<${Command} text=${commandOf(group, query, SERVICE.href)} />`}
      <${Link} key=${JSON.stringify(query)} create=${() => createLink(LINK_SECONDS)} />
    </details>
  <//>`;
}

// The approved view has earlier states of outputs, so the service rejects filters by their present state.
function queryOf(filters, format, view) {
  const query = { ...filters, format, view: view === "full" ? undefined : view };
  if (query.view) for (const name of OF_PRESENT) delete query[name];
  return query;
}

function Option({ label, about, ...rest }) {
  return html`<div class="field">
    <span class="export-label" aria-hidden="true">${label}</span>
    <${Choice} label=${label} ...${rest} />
    <p class="hint">${about}</p>
  </div>`;
}

function FilterList({ group, filters, view }) {
  const shown = Object.entries(filters).filter(([name]) => name !== "view" && !(OF_PRESENT.includes(name) && view === "approved"));
  const rows = [["Group", group], ...shown.map(([name, value]) => [FILTERS[name].label, textOf(name, value)])].map(([label, value]) => [label, html`<${Text}>${value}<//>`]);
  return html`<${Facts} class="export-filters" rows=${[...rows, shown.length === 0 && ["Filters", html`<span class="muted">None: the whole group</span>`]]} />`;
}

function Command({ text }) {
  if (text === null) return html`<p class="hint">A name or a filter has invisible characters, so there is no command to copy.</p>`;
  return html`<div class="field">
    <span class="export-label">Command</span>
    <div class="export-copy"><code><${Text}>${text}<//></code><${CopyButton} text=${text} label="the command" /></div>
    <p class="hint">It writes the same file on your machine, and can continue where it stopped.</p>
  </div>`;
}

function Link({ create }) {
  const [url, setUrl] = useState("");
  const { run, isBusy, error } = useAction(async () => setUrl(await create()));
  if (!url) {
    return html`<div class="field">
      <span class="export-label">Link</span>
      <div><${Button} small icon="link" isBusy=${isBusy} onClick=${run}>Create a link<//></div>
      <p class="hint">Whoever has it can read these outputs without a token, for one hour.</p>
      <${Problem} error=${error} />
    </div>`;
  }
  return html`<div class="export-copy">
    <${TextField} label="Link" value=${url} readonly hint="It works for one hour." />
    <${CopyButton} text=${url} label="the link" />
  </div>`;
}

const OPTIONS = { job_id: "--job", created_after: "--created-after", url: "--url", country: "--country", region: "--region", view: "--view" };
const CONTROLS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

/** Returns a file name for a group of any name. */
function fileName(group, format) {
  const name = group.replace(/[^\p{L}\p{N}._-]+/gu, "_").replace(/^[._-]+/, "").slice(0, 80);
  return `${name || "outputs"}.${format}`;
}

/** Returns the command; null if what is copied could differ from what is shown. */
function commandOf(group, query, service) {
  const options = Object.entries(OPTIONS)
    .filter(([name]) => query[name])
    .map(([name, option]) => `${option}=${quote(query[name])}`);
  if (query.approved) options.push(query.approved === "true" ? "--approved" : "--not-approved");
  const parts = ["gleanery export", `--service=${quote(service)}`, ...options, `--output=${quote(fileName(group, query.format))}`];
  const command = [...parts, group.startsWith("-") ? "--" : "", quote(group)].filter(Boolean).join(" ");
  return CONTROLS.test(command) ? null : command;
}

/** Quotes a word for sh. */
export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
