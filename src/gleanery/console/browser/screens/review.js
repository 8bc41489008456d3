// The review of a job: a sample of its outputs, decided one after the other with single keys.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { number, plural } from "../format.js";
import { useKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { replaceQuery } from "../router.js";
import { Button, Choice, Key } from "../ui/controls.js";
import { Empty, Loaded, notify } from "../ui/feedback.js";
import { Page } from "../ui/page.js";
import { Text, Time, safeUrl } from "../ui/text.js";
import { describeBound } from "./review_bound.js";
import { findingsOf, isBad, isDecided, unfinishedSeed, useDecisions } from "./review_decisions.js";
import { Finish, HALF_SENT, goOn } from "./review_finish.js";
import { History } from "./review_history.js";
import { Output, visibleRows } from "./review_output.js";

const SIZES = [20, 60, 100, 300];
const DIGITS = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
const ACTIONS = [
  ["approved", "A", "Approve", "primary"],
  ["changes_requested", "C", "Request changes", undefined],
  ["rejected", "R", "Reject", "danger"],
];

const whose = (session) => [session.organization, session.person];

/** The screen. The seed is in the address, so that a reload shows the same sample. */
export function Review({ group, job, query, session }) {
  const size = SIZES.includes(Number(query.size)) ? Number(query.size) : 100;
  const [seed] = useState(() => query.seed || unfinishedSeed([...whose(session), group, job]) || crypto.randomUUID().slice(0, 8));
  useEffect(() => {
    if (query.seed !== seed) replaceQuery({ ...query, seed });
  }, [query.seed]);
  const sample = useLoad((signal) => get(path`console/api/sample/${group}`, { job_id: job, seed, size }, signal), [group, job, seed, size]);
  const history = useLoad((signal) => get(path`console/api/reviews/${group}`, { job_id: job }, signal), [group, job]);
  const leave = useRef(); // keeps an unfinished note, before another sample is shown
  const resize = (value) => {
    leave.current?.();
    replaceQuery({ ...query, seed, size: value === 100 ? undefined : value });
  };
  const options = SIZES.map((one) => [one, String(one)]);
  const sizes = html`<div class="review-size">Sample <${Choice} label="Size of the sample" value=${size} onValue=${resize} options=${options} /></div>`;
  return html`<${Page} wide title=${job} crumbs=${[["Inbox", ["inbox"]], [group, ["groups", group]]]} note=${html`<${Note} sample=${sample.data} />`} actions=${sizes}>
    <${Loaded} state=${sample}>
      ${(data) =>
        data.sample.length
          ? html`<${Work} key=${`${data.seed} ${data.cursor} ${data.sample.length}`} ...${{ group, job, session, history, leave, sample: data }} />`
          : html`<${Empty} icon="review" title="This job has no outputs">There is nothing to review until a scraper stores outputs.<//>`}
    <//>
  <//>`;
}

function Note({ sample }) {
  if (!sample) return "Review of a job";
  const { last_approval: last, outputs } = sample;
  if (!last) return html`${plural(outputs, "output")}, never approved as a whole`;
  const by = last.person ? html` by <${Text}>${last.person}<//>` : "";
  return html`${plural(outputs, "output")}, last approved <${Time} at=${last.review_date} />${by}`;
}

/** The decisions about one sample. */
function Work({ group, job, session, history, sample, leave }) {
  const outputs = sample.sample;
  const work = useDecisions([...whose(session), group, job, sample.seed], outputs);
  const [at, setAt] = useState(() => Math.max(0, outputs.findIndex((one) => !isDecided(work.decisions.get(one.output_id)))));
  const [edit, setEdit] = useState(null);
  const [status, setStatus] = useState(null);
  const [onlyChanged, setOnlyChanged] = useState(false);
  const output = outputs[at];
  const rowsOf = (one) => visibleRows(sample, one, onlyChanged);
  const rows = useMemo(() => rowsOf(output), [output, onlyChanged]);
  const place = useRef(at);
  place.current = at;
  const draft = useRef(null);
  const show = (next) => {
    if (next < 0 || next >= outputs.length) return;
    place.current = next;
    setEdit(null);
    setAt(next);
  };
  const main = useRef();
  useEffect(() => {
    // The next output begins at its top, also after somebody has scrolled in a long one.
    if (main.current.getBoundingClientRect().top < 0) main.current.scrollIntoView();
  }, [at]);
  const canSend = session.scopes.includes("reviews:write");
  const actions = useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus, setOnlyChanged, canSend });
  leave.current = actions.keepDraft;
  useEffect(() => () => leave.current(), []);
  useEffect(() => {
    if (work.dropped) notify(`${plural(work.dropped, "decision")} about older values no longer count.`);
  }, []);
  // What a dialog has sent before an error, also for the next dialog.
  const [sent, setSent] = useState(() => ({ keys: new Map(), isApproved: false }));
  const onApproved = () => {
    setSent((before) => ({ ...before, isApproved: true }));
    history.reload();
  };
  const finish = async (text) => {
    work.forget();
    await goOn(group, job, text);
    history.reload();
  };
  return html`<${Summary} ...${{ sample, work, at, canSend, isHalfSent: sent.isApproved, onFinish: actions.finish }} />
    <div class="review-columns">
      <div class="review-main" ref=${main}>
        <${Output} ...${{ group, output, rows, onlyChanged, decision: work.decisions.get(output.output_id), edit, draft, onEdit: actions.edit, onKeep: actions.keep }} />
        ${!edit && html`<${Toolbar} ...${{ actions, at, outputs, work, onlyChanged }} />`}
      </div>
      <${History} state=${history} />
    </div>
    ${status && html`<${Finish} ...${{ status, group, job, sample, sent, onApproved, ...toSend(outputs, work.decisions) }} onClose=${() => setStatus(null)} onSent=${finish} />`}`;
}

/** Flags on outputs outside of the sample are sent, too: the review is about the whole job. */
function toSend(outputs, decisions) {
  const decided = outputs.filter((one) => isDecided(decisions.get(one.output_id)));
  const flagged = [...decisions.keys()].filter((id) => isBad(decisions.get(id)));
  const outside = flaggedOutside(outputs, decisions);
  const seen = `${decided.length} of ${outputs.length} outputs decided, ${flagged.length - outside} flagged`;
  return { findings: findingsOf(decisions), flagged, seen: outside ? `${seen}. ${sayOutside(outside)}` : seen };
}

function flaggedOutside(outputs, decisions) {
  const shown = new Set(outputs.map((one) => one.output_id));
  return [...decisions].filter(([id, decision]) => !shown.has(id) && isBad(decision)).length;
}

const sayOutside = (count) => `${plural(count, "flagged output")} ${count === 1 ? "is" : "are"} not in this sample`;

/** What keys and buttons do. Each works on the output that is shown when it is called. */
function useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus, setOnlyChanged, canSend }) {
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
      ...ACTIONS.map(([status, key, label]) => ({ keys: [key], label: `${label}: shows what is sent`, run: () => actions.finish(status) })),
    ],
    { title: "Review" },
  );
  return actions;
}

function Summary({ sample, work, at, canSend, isHalfSent, onFinish }) {
  const outputs = sample.sample;
  const decided = outputs.flatMap((output) => {
    const decision = work.decisions.get(output.output_id);
    return isDecided(decision) ? [{ isRandom: output.reason === "random", isBad: isBad(decision) }] : [];
  });
  const bad = decided.filter((one) => one.isBad).length;
  const isDone = decided.length === outputs.length;
  const isWhole = outputs.length === sample.outputs;
  const outside = flaggedOutside(outputs, work.decisions);
  return html`<section class="panel review-summary" aria-label="Progress">
    <div class="review-progress">
      <p><strong>${decided.length}/${outputs.length}</strong> decided <span class="muted">· ${number(bad)} flagged · output ${at + 1}</span></p>
      <progress max=${outputs.length} value=${decided.length} aria-label="Decided outputs"></progress>
      <p class="review-bound" role="status">${describeBound(decided, isWhole, sample.outputs)}</p>
      ${isHalfSent && html`<p class="review-outside">${HALF_SENT}</p>`}
      ${outside > 0 && html`<p class="review-outside">${sayOutside(outside)}. They are sent, too.</p>`}
      ${isDone && html`<p class="review-done">All outputs of the sample are decided. Send the review.</p>`}
    </div>
    <div class="actions">
      ${ACTIONS.map(
        ([status, key, label, kind]) => html`<${Button}
          key=${status}
          kind=${kind}
          disabled=${!canSend}
          title=${canSend ? undefined : "Your token lacks the scope reviews:write"}
          onClick=${() => onFinish(status)}
        >${label} <${Key}>${key}<//><//>`,
      )}
    </div>
  </section>`;
}

function Toolbar({ actions, at, outputs, work, onlyChanged }) {
  return html`<div class="review-tools" role="group" aria-label="Decision" onKeyDown=${(event) => event.repeat && event.key === "Enter" && event.preventDefault()}>
    <${Button} kind="primary" icon="check" onClick=${actions.accept}>OK <${Key}>a<//><//>
    <${Button} onClick=${actions.flag}>Flag <${Key}>f<//><//>
    <${Button} onClick=${actions.comment}>Comment <${Key}>c<//><//>
    <${Button} disabled=${!work.canUndo} onClick=${actions.undo}>Undo <${Key}>u<//><//>
    <${Button} aria-pressed=${onlyChanged ? "true" : "false"} onClick=${actions.toggle}>Only changed <${Key}>d<//><//>
    <${Button} onClick=${actions.open}>Source <${Key}>o<//><//>
    <span class="review-move">
      <${Button} kind="quiet" icon="back" aria-label="Previous output" title="Previous output (k)" disabled=${at === 0} onClick=${actions.previous} />
      <span class="muted">${at + 1} of ${outputs.length}</span>
      <${Button} kind="quiet" icon="arrow" aria-label="Next output" title="Next output (j)" disabled=${at === outputs.length - 1} onClick=${actions.next} />
    </span>
  </div>`;
}
