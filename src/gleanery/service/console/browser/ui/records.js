// Tables of records, and lists of names with their values.

import { html } from "../vendor/preact.js";

/**
 * A table; a narrow screen shows each row as a card.
 * columns: [label, show(row), class], …; without a label, the column has buttons. id: the member that names a row.
 * below(row) may return another row of the table.
 */
export function Table({ columns, rows, id, label, below, class: extra }) {
  const shown = columns.filter(Boolean);
  return html`<div class="table-box">
    <table class=${`cards ${extra ?? ""}`} aria-label=${label}>
      <thead>
        <tr>${shown.map(([title, , name]) => html`<th class=${name}>${title || html`<span class="visually-hidden">Actions</span>`}</th>`)}</tr>
      </thead>
      <tbody>${rows.map((row) => html`<${Row} key=${row[id]} columns=${shown} row=${row} below=${below} />`)}</tbody>
    </table>
  </div>`;
}

function Row({ columns, row, below }) {
  return html`<tr>${columns.map(([title, show, name]) => html`<td class=${name} data-label=${title}>${show(row)}</td>`)}</tr>
    ${below?.(row)}`;
}

/** rows: [name, content], …; a row that is false is left out. */
export function Facts({ rows, class: extra }) {
  return html`<dl class=${`facts ${extra ?? ""}`}>
    ${rows.filter(Boolean).map(([name, content]) => html`<div key=${name}><dt>${name}</dt><dd>${content}</dd></div>`)}
  </dl>`;
}
