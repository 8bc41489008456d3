// What keys and buttons do in a review.

import { useRef } from "../vendor/preact.js";
import { moveFocus, useKeys } from "../keys.js";
import { notify } from "../ui/feedback.js";
import { safeUrl } from "../ui/text.js";
import { isBad, isDecided } from "./review_decisions.js";
import { whyNoDiff } from "./review_output.js";

const DIGITS = [..."123456789"];
/** How a review ends: the status, its key, its label, and the kind of its button. */
export const ENDINGS = [
  ["approved", "A", "Approve", "primary"],
  ["changes_requested", "C", "Request changes", undefined],
  ["rejected", "R", "Reject", "danger"],
];

/** Returns the actions, and makes their keys active. Each works on the output that is shown when it is called. */
export function useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus, setOnlyChanged, canSend }) {
  const close = useRef(); // removes the last notice about a decision
  const say = (text) => {
    close.current?.();
    close.current = notify(text);
  };
  const current = () => outputs[place.current];
  const flags = () => work.decisions.get(current().output_id)?.flags ?? [];
  const flagOf = (path) => flags().find((flag) => flag.path === path);
  const pathOf = (at) => rowsOf(current())[at]?.path;
  /** Returns the field whose row has the focus. */
  const chosenPath = () => pathOf(document.activeElement.closest(".review-fields tbody tr")?.sectionRowIndex);
  const addNote = (path, note) => work.add(current().output_id, path !== null || flagOf(null) ? "flag" : "comment", path, note);
  /** Keeps a note that somebody leaves without Enter or Escape. Returns whether there was one. */
  const keepDraft = () => {
    const { path, note } = draft.current ?? {};
    draft.current = null;
    setEdit(null);
    if (!note) return false;
    addNote(path, note);
    say("Your note was kept. u removes it.");
    return true;
  };
  const move = (step) => {
    keepDraft();
    show(place.current + step);
  };
  const advance = () => {
    const here = place.current;
    const isOpen = (one, at) => at !== here && !isDecided(work.decisions.get(one.output_id));
    const after = outputs.findIndex((one, at) => at > here && isOpen(one, at));
    show(after >= 0 ? after : outputs.findIndex(isOpen));
  };
  const actions = {
    accept() {
      if (keepDraft()) return;
      const decision = work.decisions.get(current().output_id);
      if (!decision?.isOk) work.add(current().output_id, "ok");
      if (isBad(decision)) say("OK: its flags were removed. u restores them.");
      advance();
    },
    keep(path, note) {
      addNote(path, note);
      setEdit(null);
    },
    keepDraft,
    /** Flags a field, or removes its flag. Without a path, it is the output as a whole. */
    toggleFlag(path = null) {
      keepDraft();
      work.add(current().output_id, flagOf(path) ? "unflag" : "flag", path);
    },
    flag: () => actions.toggleFlag(chosenPath()),
    flagRow(key) {
      const path = pathOf(key - 1);
      if (path !== undefined) actions.toggleFlag(path);
    },
    comment() {
      keepDraft();
      const path = chosenPath() ?? null;
      setEdit({ path: flagOf(path) ? path : (flags().at(-1)?.path ?? null) });
    },
    undo() {
      close.current?.();
      if (keepDraft()) return;
      const id = work.undo();
      const found = outputs.findIndex((one) => one.output_id === id);
      if (found >= 0) show(found);
    },
    toggle() {
      const why = whyNoDiff(current());
      if (why) say(`${why}.`);
      else setOnlyChanged((before) => !before);
    },
    open() {
      const url = safeUrl(current().source_url);
      if (url) window.open(url.href, "_blank", "noopener,noreferrer");
      else notify("This source is not a web address.", { tone: "bad" });
    },
    next: () => move(1),
    previous: () => move(-1),
    finish(status) {
      keepDraft();
      if (canSend) setStatus(status);
      else notify("Your token lacks the scope reviews:write.", { tone: "bad" });
    },
  };
  useKeys(
    [
      { keys: ["a"], label: "OK, next output", run: actions.accept },
      { keys: ["1"], label: "Flag this field, or remove its flag", run: () => actions.flagRow(1) },
      { keys: DIGITS.slice(1), run: (event) => actions.flagRow(event.key) },
      { keys: ["ArrowDown", "ArrowUp"], label: "Choose a field", repeats: true, run: (event) => moveFocus(event.key === "ArrowUp" ? -1 : 1) },
      { keys: ["f"], label: "Flag the chosen field, or the output", run: actions.flag },
      { keys: ["c"], label: "Note on the flag, or on the output", run: actions.comment },
      { keys: ["j", "ArrowRight"], label: "Next output, keeps the flags", repeats: true, run: actions.next },
      { keys: ["k", "ArrowLeft"], label: "Previous output", repeats: true, run: actions.previous },
      { keys: ["u"], label: "Undo the last decision", run: actions.undo },
      { keys: ["d"], label: "Only changed fields", run: actions.toggle },
      { keys: ["o"], label: "Open the source", run: actions.open },
      ...ENDINGS.map(([status, key, label]) => ({ keys: [key], label: `${label}: shows what is sent`, run: () => actions.finish(status) })),
    ],
    { title: "Review" },
  );
  return actions;
}
