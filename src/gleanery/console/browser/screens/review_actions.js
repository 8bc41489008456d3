// What keys and buttons do in a review.

import { useKeys } from "../keys.js";
import { notify } from "../ui/feedback.js";
import { safeUrl } from "../ui/text.js";
import { isBad, isDecided } from "./review_decisions.js";

const DIGITS = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
/** How a review ends: the status, its key, its label, and the kind of its button. */
export const ENDINGS = [
  ["approved", "A", "Approve", "primary"],
  ["changes_requested", "C", "Request changes", undefined],
  ["rejected", "R", "Reject", "danger"],
];

/** Returns the actions, and makes their keys active. Each works on the output that is shown when it is called. */
export function useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus, setOnlyChanged, canSend }) {
  const current = () => outputs[place.current];
  const addNote = ({ path: field, comment }, note) =>
    work.add(current().output_id, comment ? "comment" : "flag", comment ? null : field, note);
  /** Keeps a note that somebody leaves without Enter or Escape. Returns whether there was one. */
  const keepDraft = () => {
    const { about, note } = draft.current ?? {};
    draft.current = null;
    if (!note) return false;
    addNote(about, note);
    setEdit(null);
    notify(about.comment ? "Your comment was kept. u removes it." : "Your note was kept, as a flag. u removes it.");
    return true;
  };
  const edit = (next) => {
    keepDraft();
    setEdit(next);
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
      if (isBad(decision)) notify("The flag was removed. u restores it.", { tone: "bad" });
      advance();
    },
    keep(about, note, stays) {
      addNote(about, note);
      setEdit(null);
      if (!about.comment && !stays) advance();
    },
    keepDraft,
    edit,
    flag: () => edit({ path: null }),
    comment: () => edit({ comment: true }),
    flagRow(key) {
      const row = rowsOf(current())[Number(key) - 1];
      if (row) edit({ path: row.path });
    },
    undo() {
      if (keepDraft()) return;
      const id = work.undo();
      const found = outputs.findIndex((one) => one.output_id === id);
      if (found >= 0) show(found);
    },
    toggle: () => setOnlyChanged((before) => !before),
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
      { keys: ["f"], label: "Flag the output or a field", run: actions.flag },
      { keys: ["1"], label: "Flag field 1; so on to 9", run: () => actions.flagRow("1") },
      { keys: DIGITS.slice(1), run: (event) => actions.flagRow(event.key) },
      { keys: ["c"], label: "Comment on the output", run: actions.comment },
      { keys: ["u"], label: "Undo the last decision", run: actions.undo },
      { keys: ["d"], label: "Only changed fields", run: actions.toggle },
      { keys: ["o"], label: "Open the source", run: actions.open },
      { keys: ["j", "ArrowRight"], label: "Next output", repeats: true, run: actions.next },
      { keys: ["k", "ArrowLeft"], label: "Previous output", repeats: true, run: actions.previous },
      ...ENDINGS.map(([status, key, label]) => ({ keys: [key], label: `${label}: shows what is sent`, run: () => actions.finish(status) })),
    ],
    { title: "Review" },
  );
  return actions;
}
