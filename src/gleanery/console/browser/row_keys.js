// The keys j and k, which move the focus over the rows of a list; Enter opens the focused link.

import { useKeys } from "./keys.js";

/** Rows are links with the attribute data-row. */
export function useRowKeys() {
  const move = (step) => () => {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step;
    rows[Math.min(Math.max(next, 0), rows.length - 1)]?.focus();
  };
  useKeys([
    { keys: ["j", "ArrowDown"], label: "Next row", repeats: true, run: move(1) },
    { keys: ["k", "ArrowUp"], label: "Previous row", repeats: true, run: move(-1) },
    { keys: ["Enter"], label: "Open the row", run: () => document.activeElement.click() },
  ]);
}
