// A row of the grid and its cells.

import { html } from "../vendor/preact.js";
import { fullTime, plural } from "../format.js";
import { Badge } from "../ui/controls.js";
import { Text, Time, shortUrl, visibleText } from "../ui/text.js";
import { Change, plain } from "../ui/value.js";

/** Number of the columns that do not come from data. */
export const FIXED = 4;
const WIDTHS = { number: 150, boolean: 100, string: 160, array: 160, null: 100 };

/** Returns the style of the canvas: the widths of all columns. */
export function template(columns) {
  const widths = [204, ...columns.map(({ kind }, at) => (at === 0 && kind === "string" ? 210 : (WIDTHS[kind] ?? 160))), 120, 200, 116];
  const total = widths.reduce((sum, width) => sum + width, 0);
  const tracks = widths.map((width, at) => (at === 0 ? `var(--outputs-when, ${width}px)` : `minmax(${width}px, ${width}fr)`));
  return { "--outputs-columns": tracks.join(" "), minWidth: `${total}px` };
}

/** digits: of each column, the decimals of its numbers. */
export function Row({ row, columns, digits, top, isSelected, onSelect, onOpen }) {
  const open = () => {
    onSelect(row.output_id);
    onOpen(row.output_id);
  };
  return html`<div
    id=${`row-${row.output_id}`}
    class="outputs-row"
    role="row"
    aria-selected=${isSelected}
    style=${{ top: `${top}px` }}
    onClick=${open}
  >
    <${Cell} class="outputs-when" title=${`Value of ${fullTime(row.value_cursor)}`}><${Time} at=${row.cursor} /><span>${changeOf(row)}</span><//>
    ${columns.map((column, at) => html`<${ValueCell} key=${column.path} ...${{ row, column, at }} digits=${digits[at]} />`)}
    <${Cell} text=${row.job_id} class="outputs-job" />
    <${Cell} text=${shortUrl(plain(row.source_url))} title=${plain(row.source_url)} class="outputs-source" />
    <${Cell} class="outputs-approval">${row.approved && html`<${Badge} tone="good">Approved<//>`}<//>
  </div>`;
}

/** Returns what the last change of an output was. An approval changes no value, so what changed before it is said as well. */
function changeOf(row) {
  const value = row.changes === null ? "updated" : row.changes === 0 ? "new" : plural(row.changes, "field");
  if (row.value_cursor === row.cursor) return value;
  return (row.approved ? "approved" : "unapproved") + (row.changes ? `, ${value}` : "");
}

/** Returns the number of decimals of a number; many are not counted. */
export function decimals(node) {
  return node?.[0] === "n" ? (/\.(\d{1,4})$/.exec(node[1])?.[1].length ?? 0) : 0;
}

/** Returns what has the width of the missing decimals, so that the points are below each other. */
function padding(node, digits) {
  const count = decimals(node);
  return node?.[0] === "n" && count < digits ? (count ? "" : ".") + "0".repeat(digits - count) : undefined;
}

function ValueCell({ row, column, at, digits }) {
  const node = row.cells[at];
  const pad = padding(node, digits);
  const { path, kind } = column;
  if (Object.hasOwn(row.changed, path)) { // a field can be named constructor
    const title = `${plain(row.changed[path])} → ${plain(node)}`;
    return html`<${Cell} class=${`${kind} outputs-changed`} title=${title} pad=${pad}><${Change} before=${row.changed[path]} after=${node} /><//>`;
  }
  if (!node) return html`<${Cell} class=${`${kind} absent`}>–<//>`;
  const isInside = row.changed_inside.includes(path);
  const name = [kind, node[0] === "z" && "absent", isInside && "outputs-changed"].filter(Boolean).join(" ");
  return html`<${Cell} class=${name} pad=${pad} text=${plain(node)} title=${isInside ? "A part of this value changed" : undefined} />`;
}

/** A cell with children, or with a text from data. */
export function Cell({ role = "gridcell", class: extra, title, text, pad, children }) {
  return html`<div class=${`outputs-cell ${extra ?? ""}`} role=${role} data-pad=${pad} title=${title && visibleText(title)}>
    ${text === undefined ? children : html`<${Text}>${text}<//>`}
  </div>`;
}
