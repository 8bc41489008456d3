// A small chart of a series of numbers, without axes.

import { html } from "../vendor/preact.js";

const WIDTH = 96, HEIGHT = 24, EDGE = 3;

/** values: numbers, oldest first; null leaves a gap. label: what a screen reader reads. max: the top of the chart. */
export function Sparkline({ values, label, max }) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return html`<span class="absent">–</span>`;
  const top = max ?? (Math.max(...known) || 1);
  const step = (WIDTH - 2 * EDGE) / Math.max(values.length - 1, 1);
  const x = (at) => (values.length === 1 ? WIDTH - EDGE : EDGE + at * step);
  const y = (value) => HEIGHT - EDGE - (Math.min(value, top) / top) * (HEIGHT - 2 * EDGE);
  const last = values.findLastIndex((value) => value !== null && value !== undefined);
  return html`<svg class="sparkline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} role="img" aria-label=${label}>
    <title>${label}</title>
    <path d=${line(values, x, y)} />
    <circle cx=${x(last)} cy=${y(values[last])} r="2" />
  </svg>`;
}

/** Returns the path through the values. A gap starts a new line. */
function line(values, x, y) {
  let isOpen = false;
  let path = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    isOpen = true;
  });
  return path;
}
