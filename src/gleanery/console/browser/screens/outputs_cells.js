// A row of the grid and its cells.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { Badge } from "../ui/controls.js";
import { Text, Time, safeUrl, visibleText } from "../ui/text.js";
import { Change, plain } from "../ui/value.js";

/** Number of the columns that do not come from data. */
export const FIXED = 5;
const WIDTHS = { number: 150, boolean: 100, string: 160, array: 160, null: 100 };

/** Returns the style of the canvas: the widths of all columns. */
export function template(columns) {
  const widths = [104, ...columns.map(({ kind }, at) => (at === 0 && kind === "string" ? 210 : (WIDTHS[kind] ?? 160))), 120, 200, 92, 116];
  const total = widths.reduce((sum, width) => sum + width, 0);
  const tracks = widths.map((width, at) => (at === 0 ? `${width}px` : `minmax(${width}px, ${width}fr)`));
  return { "--outputs-columns": tracks.join(" "), minWidth: `${total}px` };
}

export function Row({ row, columns, top, isSelected, onSelect, onOpen }) {
  const open = () => {
    onSelect(row.output_id);
    onOpen(row.output_id);
  };
  return html`<div
    id=${`row-${row.output_id}`}
    class="outputs-row"
    role="row"
    aria-selected=${isSelected ? "true" : "false"}
    style=${{ top: `${top}px` }}
    onClick=${open}
  >
    <${Cell} class="outputs-when"><${Time} at=${row.cursor} /><//>
    ${columns.map((column, at) => html`<${ValueCell} key=${column.path} ...${{ row, column, at }} />`)}
    <${Cell} text=${row.job_id} class="outputs-job" />
    <${Cell} text=${shortSource(plain(row.source_url))} title=${plain(row.source_url)} class="outputs-source" />
    <${Cell} class="outputs-change">${changeOf(row)}<//>
    <${Cell} class="outputs-approval">${row.approved && html`<${Badge} tone="good">Approved<//>`}<//>
  </div>`;
}

function changeOf(row) {
  if (row.changes === null) return "updated";
  return row.changes === 0 ? html`<span class="muted">new</span>` : plural(row.changes, "field");
}

function ValueCell({ row, column, at }) {
  const node = row.cells[at];
  const { path, kind } = column;
  if (Object.hasOwn(row.changed, path)) { // a field can be named constructor
    const title = `${plain(row.changed[path])} → ${plain(node)}`;
    return html`<${Cell} class=${`${kind} outputs-changed`} title=${title}><${Change} before=${row.changed[path]} after=${node} /><//>`;
  }
  if (!node) return html`<${Cell} class=${`${kind} absent`}>–<//>`;
  const isInside = row.changed_inside.includes(path);
  const name = [kind, node[0] === "z" && "absent", isInside && "outputs-changed"].filter(Boolean).join(" ");
  return html`<${Cell} class=${name} text=${plain(node)} title=${isInside ? "A part of this value changed" : undefined} />`;
}

/** A cell with children, or with a text from data. */
export function Cell({ role = "gridcell", class: extra, title, text, children }) {
  return html`<div class=${`outputs-cell ${extra ?? ""}`} role=${role} title=${title && visibleText(title)}>
    ${text === undefined ? children : html`<${Text}>${text}<//>`}
  </div>`;
}

/** Returns a URL without what all have: the host is in ASCII, as in a link. */
function shortSource(text) {
  const url = safeUrl(text);
  return url ? url.host + (url.pathname + url.search + url.hash).replace(/^\/$/, "") : text;
}
