// Keyboard shortcuts of the shown screen, and the list of them for the help.

import { useEffect, useLayoutEffect, useState } from "./vendor/preact.js";

const OFF = "gleanery.keys-off";
const layers = [];
const listeners = new Set();

export function keysAreOff() {
  return localStorage.getItem(OFF) === "1";
}

export function switchKeys(off) {
  if (off) localStorage.setItem(OFF, "1");
  else localStorage.removeItem(OFF);
  changed();
}

function changed() {
  for (const listener of listeners) listener();
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.closest?.("input, textarea, select, [contenteditable]")) return;
  if (keysAreOff() && event.key !== "Escape") return;
  // A dialog takes all keys: those of the screen below it do nothing.
  const visible = document.querySelector("dialog[open]") ? layers.filter((layer) => layer.inDialog) : layers;
  for (const layer of visible.toReversed()) {
    const shortcut = layer.shortcuts.find((one) => one.keys.includes(event.key));
    if (shortcut) {
      event.preventDefault();
      // A key that is held must not decide many outputs at once.
      if (!event.repeat || shortcut.repeats) shortcut.run(event);
      return;
    }
  }
});

/**
 * Makes shortcuts active while the component is shown.
 * A key of the screen hides the same key with isEverywhere.
 * Each is { keys: ["j", "ArrowDown"], label: "Next output", run }. Without a label it is not in the help.
 * With repeats, a key that is held runs it again and again.
 */
export function useKeys(shortcuts, { inDialog = false, isEverywhere = false, title = "This screen" } = {}) {
  const [layer] = useState(() => ({}));
  Object.assign(layer, { shortcuts, inDialog, title });
  // Before the browser paints: the keys work as soon as the screen is visible.
  useLayoutEffect(() => {
    if (isEverywhere) layers.unshift(layer); // the keys of a screen come first
    else layers.push(layer);
    changed();
    return () => {
      layers.splice(layers.indexOf(layer), 1);
      changed();
    };
  }, []);
}

/** Returns the active shortcuts by title, for the help. */
export function useShortcuts() {
  const [, update] = useState(0);
  useEffect(() => {
    const listener = () => update((count) => count + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return layers.map(({ title, shortcuts }) => ({ title, shortcuts: shortcuts.filter((one) => one.label) }));
}

/** Moves the focus to another element with the attribute data-row. */
export function moveFocus(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step;
  rows[Math.min(Math.max(next, 0), rows.length - 1)]?.focus();
}

/** The keys j and k move the focus over rows, which are links with the attribute data-row; Enter opens the focused one. */
export function useRowKeys() {
  useKeys([
    { keys: ["j", "ArrowDown"], label: "Next row", repeats: true, run: () => moveFocus(1) },
    { keys: ["k", "ArrowUp"], label: "Previous row", repeats: true, run: () => moveFocus(-1) },
    { keys: ["Enter"], label: "Open the row", run: () => document.activeElement.click() },
  ]);
}
