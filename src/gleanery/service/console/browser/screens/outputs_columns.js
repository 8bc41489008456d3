// The columns of the grid: chosen from the fields of the group, and kept for the group.

import { html, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { percent } from "../format.js";
import { useLoad } from "../load.js";
import { Button, Checkbox } from "../ui/controls.js";
import { Dialog } from "../ui/dialog.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Text } from "../ui/text.js";
import { fieldName } from "../ui/value.js";

const NAME = "gleanery.columns.";
const MAX = 12;

/** Returns the stored columns of a group: [{ path, kind }, …]; null if none are stored. */
export function storedColumns(group) {
  try {
    const found = JSON.parse(localStorage.getItem(NAME + group));
    return Array.isArray(found) && found.every((one) => typeof one.path === "string") ? found.slice(0, MAX) : null;
  } catch {
    return null;
  }
}

export function storeColumns(group, columns) {
  if (columns) localStorage.setItem(NAME + group, JSON.stringify(columns));
  else localStorage.removeItem(NAME + group);
}

function kindOf(field) {
  const [kind] = Object.entries(field.kinds).sort(([, one], [, other]) => other - one)[0] ?? ["string"];
  return kind === "integer" ? "number" : kind.replace("empty_", "");
}

const column = (field) => ({ path: field.path, kind: kindOf(field) });

/** Returns the tags of the newest outputs in the form of fields. */
async function loadTags(group, signal) {
  const { rows } = await get(path`console/api/rows/${group}`, { columns: '["$.tags"]', limit: 50 }, signal);
  const names = new Set(rows.flatMap((row) => row.cells[0][1].map(([name]) => name)));
  return [...names].map((name) => ({ path: `$.tags${/^[^\s.[\]"\\$]+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`}`, kinds: {} }));
}

/** Returns the fields of the group, and the tags of its newest outputs. */
async function loadFields(group, signal) {
  const [{ fields }, tags] = await Promise.all([get(path`v1/groups/${group}/fields`, {}, signal), loadTags(group, signal)]);
  return [...fields, ...tags];
}

/** A dialog in which the person chooses columns. onDone(null) goes back to the usual ones. */
export function ColumnDialog({ group, columns, onDone, onClose }) {
  const fields = useLoad((signal) => loadFields(group, signal), [group]);
  const [chosen, setChosen] = useState(columns);
  const paths = new Set(chosen.map((one) => one.path));
  const isFull = chosen.length >= MAX;
  const change = (field, isChosen) =>
    setChosen(isChosen ? [...chosen, column(field)] : chosen.filter((one) => one.path !== field.path));
  const actions = html`
    <${Button} kind="quiet" onClick=${() => onDone(null)}>Use the usual columns<//>
    <${Button} kind="primary" onClick=${() => onDone(chosen)}>Show ${chosen.length} columns<//>`;
  return html`<${Dialog} title="Columns" onClose=${onClose} actions=${actions}>
    <p class="muted">Choose up to ${MAX}, in the order in which to show them. The percentage says how many outputs have a value.</p>
    <${Loaded} state=${fields}>
      ${(found) =>
        found.length
          ? html`<ul class="outputs-fields">
              ${found.map(
                (field) => html`<li key=${field.path}>
                  <${Checkbox}
                    label=${html`<${Text}>${fieldName(field.path)}<//>`}
                    checked=${paths.has(field.path)}
                    disabled=${isFull && !paths.has(field.path)}
                    onValue=${(value) => change(field, value)}
                  />
                  <small class="muted">${kindOf(field)}${field.fill_rate === undefined ? "" : ` · ${percent(field.fill_rate)}`}</small>
                </li>`,
              )}
            </ul>`
          : html`<${Empty} icon="fields" title="No fields yet">The fields are counted when outputs are stored.<//>`}
    <//>
  <//>`;
}
