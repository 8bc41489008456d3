// A share of a whole, as a small bar with its percentage.

import { html } from "../vendor/preact.js";
import { number, percent } from "../format.js";

/** noun: what the share is, such as "approved"; a screen reader reads it. */
export function Share({ part, whole, noun }) {
  if (!whole) return html`<span class="absent">–</span>`;
  const share = part / whole;
  const label = `${number(part)} of ${number(whole)} ${noun}`;
  return html`<span class=${share === 1 ? "share whole" : "share"} title=${label}>
    <span class="share-bar" aria-hidden="true"><span style=${{ width: `${Math.max(share * 100, part ? 4 : 0)}%` }}></span></span>
    <span class="share-text">${shortPercent(share)}</span>
    <span class="visually-hidden">${noun}</span>
  </span>`;
}

/** A rounded share never shows 0 % for something, nor 100 % for less than all. */
function shortPercent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  if (share < 1 && share > 0.99) return "> 99 %";
  return percent(Math.round(share * 100) / 100);
}
