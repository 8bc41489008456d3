// Small charts without axes: a share of a whole as a bar, and a series of numbers as a line.

import { html } from "../vendor/preact.js";
import { number, percent } from "../format.js";

/** noun: what the share is, such as "approved"; a screen reader reads it, and isLabelled shows it. tone: the colour, "warn" or "bad". */
export function Share({ part, whole, noun, isLabelled, tone }) {
  if (!whole) return html`<span class="absent">–</span>`;
  const share = part / whole;
  const label = `${number(part)} of ${number(whole)} ${noun}`;
  return html`<span class=${share === 1 ? "share whole" : "share"} title=${label}>
    <span class="share-bar" aria-hidden="true"><span class=${tone} style=${{ width: `${Math.max(share * 100, part ? 4 : 0)}%` }}></span></span>
    <span class="share-text">${shortPercent(share)}</span>
    <span class=${isLabelled ? "" : "visually-hidden"}>${noun}</span>
  </span>`;
}

/** A rounded share never shows 0 % for something, nor 100 % for less than all. */
function shortPercent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  if (share < 1 && share > 0.99) return "> 99 %";
  return percent(Math.round(share * 100) / 100);
}

const WIDTH = 96, HEIGHT = 24, EDGE = 3;

/** values: numbers, oldest first; null leaves a gap. Equal ones are a line in the middle. label: what a screen reader reads. max: the top of the chart. */
export function Sparkline({ values, label, max }) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return html`<span class="absent">–</span>`;
  const top = max ?? (Math.max(...known) || 1);
  const step = (WIDTH - 2 * EDGE) / Math.max(values.length - 1, 1);
  const x = (at) => (values.length === 1 ? WIDTH - EDGE : EDGE + at * step);
  const isFlat = known.every((value) => value === known[0]);
  const y = (value) => isFlat ? HEIGHT / 2 : HEIGHT - EDGE - (Math.min(value, top) / top) * (HEIGHT - 2 * EDGE);
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
