// The versions of an output as a timeline, newest first, with the fields that each one changed.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { fullTime, plural } from "../format.js";
import { useAction } from "../load.js";
import { Badge, Button } from "../ui/controls.js";
import { Loading, Problem } from "../ui/feedback.js";
import { Facts } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { Change, fieldName } from "../ui/value.js";

const FIRST = 8;

/** Give it a key with the id of the output: it loads once. */
export function History({ group, outputId }) {
  const [versions, setVersions] = useState([]);
  const [next, setNext] = useState(undefined);
  const { run, isBusy, error } = useAction(async () => {
    const page = await get(path`console/api/outputs/${group}/${outputId}/history`, { cursor: next });
    setVersions((before) => [...before, ...page.versions]);
    setNext(page.next_cursor);
  });
  useEffect(() => {
    run();
  }, []);
  if (next === undefined && !error) return html`<${Loading} />`;
  if (error?.status === 404) return html`<p class="muted">No version of it is kept.</p>`;
  return html`<ol class="output-timeline">
      ${versions.map((version) => html`<${Version} key=${`${version.change} ${version.cursor}`} version=${version} />`)}
    </ol>
    <${Problem} error=${error} onRetry=${run} />
    ${next !== null && !error && html`<div><${Button} small isBusy=${isBusy} onClick=${run}>Load earlier versions<//></div>`}`;
}

function Version({ version }) {
  return html`<li class=${`output-version ${version.is_approved ? "approved" : version.change}`}>
    <header>
      <strong>${title(version)}</strong>
      ${version.is_approved && html`<${Badge} tone="good">Approved<//>`}
      <span class="muted"><${Time} at=${version.version_date} show=${fullTime} /></span>
    </header>
    ${version.change === "update" && version.fields === null && html`<p class="muted">The version before is no longer kept.</p>`}
    ${version.fields?.length > 0 && html`<${ChangedFields} fields=${version.fields} />`}
  </li>`;
}

function title({ change, fields }) {
  if (change === "create") return "Created";
  if (change === "delete") return "Deleted";
  return fields === null ? "Changed" : `${plural(fields.length, "field")} changed`;
}

/** Fields with their old and new value. */
export function ChangedFields({ fields }) {
  const [isOpen, setOpen] = useState(false);
  const shown = isOpen ? fields : fields.slice(0, FIRST);
  return html`<${Facts} class="output-changes" rows=${shown.map(({ path: name, before, after }) => [html`<${Text}>${fieldName(name)}<//>`, html`<${Change} before=${before} after=${after} />`])} />
    ${shown.length < fields.length &&
    html`<div><${Button} small kind="quiet" onClick=${() => setOpen(true)}>Show ${plural(fields.length - shown.length, "more field")}<//></div>`}`;
}
