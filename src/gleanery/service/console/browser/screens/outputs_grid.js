// The grid: shows the rows around the scroll position, and asks for more near both ends.

import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "../vendor/preact.js";
import { Button } from "../ui/controls.js";
import { Loading, Problem } from "../ui/feedback.js";
import { fieldName } from "../ui/value.js";
import { Cell, FIXED, Row, decimals, template } from "./outputs_cells.js";
import { indexOf } from "./outputs_rows.js";

const HEADER = 36;
const OVERSCAN = 3;
const NEAR = 30; // rows before an end, at which the next page is loaded

/** control.current gets the functions that move the focus and the scroll position. */
export function Grid({ rows: loaded, columns, rowHeight, isNarrow, selected, onSelect, onOpen, onView, control }) {
  const { rows } = loaded;
  const [box, first, last, scrolled] = useScroll(loaded, rowHeight);
  useEffect(() => {
    onView(rows[first]?.cursor, rows[last - 1]?.cursor, isAtTop(box.current, loaded, rowHeight));
    if (!loaded.isLoaded || loaded.error || loaded.isPaused) return;
    if (last > rows.length - NEAR) loaded.loadOlder();
    if (first < NEAR) loaded.loadNewer();
  });
  control.current = {
    focus: () => box.current.focus({ preventScroll: true }),
    firstVisible: first,
    size: Math.max(last - first - 1, 1),
    show: (at) => showRow(box.current, at, rowHeight),
  };
  const digits = useMemo(() => columns.map((_, at) => rows.reduce((most, row) => Math.max(most, decimals(row.cells[at])), 0)), [rows]);
  const start = Math.max(first - OVERSCAN, 0);
  const shown = rows.slice(start, last + OVERSCAN);
  return html`<div
    ref=${box}
    class="outputs-grid"
    onScroll=${scrolled}
    role="grid"
    tabindex="0"
    aria-label="Outputs, newest change first"
    aria-rowcount="-1"
    aria-colcount=${columns.length + FIXED}
    aria-activedescendant=${shown.some((row) => row.output_id === selected) ? `row-${selected}` : undefined}
    aria-busy=${loaded.isLoaded || loaded.error ? undefined : "true"}
  >
    <div class="outputs-canvas" role="presentation" style=${isNarrow ? {} : template(columns)}>
      <${Header} columns=${columns} />
      <div class="outputs-body" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>
        ${shown.map((row, at) => html`<${Row} key=${row.output_id} ...${{ row, columns, digits, onSelect, onOpen }}
          top=${(start + at) * rowHeight} isSelected=${row.output_id === selected} />`)}
      </div>
    </div>
    <div role="row"><div role="gridcell" aria-colspan=${columns.length + FIXED}><${Rest} loaded=${loaded} /></div></div>
  </div>`;
}

/** Keeps the first visible row at its place. Returns the box, the visible range, and the listener of the box. */
function useScroll(loaded, rowHeight) {
  const box = useRef();
  const drawn = useRef(null);
  const [, update] = useReducer((count) => count + 1, 0);
  const { rows, newer, jumps } = loaded;
  // The place is read before the rows change: the event of a scroll can come after them.
  const anchor = drawn.current && anchorOf(box.current.scrollTop, drawn.current);
  useLayoutEffect(() => {
    const isSame = drawn.current?.loaded === loaded && drawn.current.jumps === jumps;
    drawn.current = { loaded, rows, newer, jumps, rowHeight };
    box.current.scrollTop = isSame && anchor ? indexOf(rows, anchor.cursor) * rowHeight + anchor.offset : 0;
    update();
  }, [loaded, loaded.version, rowHeight]);
  useEffect(() => {
    const observer = new ResizeObserver(update);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, ...visible(box.current, rows.length, rowHeight), update];
}

/** Returns the first visible row, and how much of it is above; null at the top, where new rows push the others down. */
function anchorOf(scrollTop, { rows, newer, rowHeight }) {
  if (!rows.length || (newer === null && scrollTop < rowHeight / 2)) return null;
  const at = Math.min(Math.floor(scrollTop / rowHeight), rows.length - 1);
  return { cursor: rows[at].cursor, offset: scrollTop - at * rowHeight };
}

function Header({ columns }) {
  return html`<div class="outputs-head" role="rowgroup"><div class="outputs-row" role="row">
    <${Cell} role="columnheader" class="outputs-when" title="Newest first. The order is always by time.">Updated ↓<//>
    ${columns.map((column) => html`<${Cell} key=${column.path} role="columnheader" class=${column.kind} title=${column.path} text=${fieldName(column.path)} />`)}
    <${Cell} role="columnheader">Job<//>
    <${Cell} role="columnheader">Source<//>
    <${Cell} role="columnheader">Approval<//>
  </div></div>`;
}

/** What follows the last row: loading, an error, or a pause of the search. */
function Rest({ loaded }) {
  if (loaded.error) return html`<div class="outputs-rest"><${Problem} error=${loaded.error} onRetry=${loaded.error.status !== 422 && loaded.retry} /></div>`;
  if (loaded.isPaused) {
    return html`<div class="outputs-rest">
      <p class="muted">No match in a large part of the group.</p>
      <${Button} small onClick=${() => loaded.resume()}>Search further<//>
    </div>`;
  }
  if (!loaded.isLoaded || loaded.older !== null) return html`<div class="outputs-rest"><${Loading} /></div>`;
  return loaded.rows.length > 0 && html`<p class="outputs-rest muted">This is the oldest output.</p>`;
}

function visible(box, count, rowHeight) {
  if (!box) return [0, 0];
  const first = Math.floor(box.scrollTop / rowHeight);
  const size = Math.ceil((box.clientHeight - HEADER) / rowHeight) + 1;
  return [Math.min(first, Math.max(count - 1, 0)), Math.min(first + size, count)];
}

function isAtTop(box, loaded, rowHeight) {
  return loaded.newer === null && box.scrollTop < rowHeight / 2;
}

function showRow(box, at, rowHeight) {
  const space = box.clientHeight - HEADER;
  const top = at * rowHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + rowHeight > box.scrollTop + space) box.scrollTop = top + rowHeight - space;
}
