// The progress of a review, the buttons that end it, and the buttons of one decision.

import { html } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { href } from "../router.js";
import { Button, Choice, Key } from "../ui/controls.js";
import { Time } from "../ui/text.js";
import { ENDINGS } from "./review_actions.js";
import { describeBound, warnFew } from "./review_bound.js";
import { findingsOf, isBad, isDecided } from "./review_decisions.js";
import { whyNoDiff } from "./review_output.js";
import { HALF_SENT } from "./review_sending.js";

const SECTIONS = ["changed", "unusual", "new", "random", "unchanged"];
const isWhole = (sample) => sample.chosen === sample.outputs;

function sectionOf(sample, { approval, before, reason }) {
  if (isWhole(sample) ? before : reason === "changed") return "changed";
  if (reason === "rare_shape" || reason === "outlier") return "unusual";
  return !isWhole(sample) ? "random" : approval === "none" ? "new" : "unchanged";
}

/**
 * Returns the outputs of a sample in the order of the review: what has changed comes first.
 * Random outputs stay in their random order, changed or not: so the bound is right wherever a reviewer stops.
 */
export function inOrder(sample) {
  const place = (output) => SECTIONS.indexOf(sectionOf(sample, output));
  return sample.sample.toSorted((one, other) => place(one) - place(other));
}

/** Returns what the decisions say about the job, and what is sent. Flags on outputs outside of the sample are sent, too. */
export function summarize(sample, decisions) {
  const outputs = sample.sample;
  const decided = outputs.flatMap((output) => {
    const decision = decisions.get(output.output_id);
    return isDecided(decision) ? [{ isRandom: output.reason === "random", isBad: isBad(decision), isLater: decision.isLater }] : [];
  });
  const bad = decided.filter((one) => one.isBad).length;
  const all = [...decisions.keys()].filter((id) => isBad(decisions.get(id)));
  const count = all.length - bad;
  const outside = count > 0 && `${plural(count, "flagged output")} ${count === 1 ? "is" : "are"} not in this sample`;
  const seen = `${decided.length} of ${outputs.length} outputs decided, ${bad} flagged`;
  const about = [decided.filter((one) => !one.isLater), isWhole(sample), sample.outputs];
  return {
    decided: decided.length,
    bad,
    outside,
    flagged: all.filter((id) => !decisions.get(id).isLater),
    findings: findingsOf(decisions),
    bound: describeBound(...about),
    warning: warnFew(...about),
    seen: outside ? `${seen}. ${outside}` : seen,
  };
}

export function Summary({ sample, summary, later, canSend, sent, onFinish, onRenew, ...rest }) {
  const { decided, bad, outside, bound } = summary;
  return html`<section class="panel review-summary" aria-label="Progress">
    <p><strong>${decided}/${sample.sample.length}</strong> decided <span class="muted">· ${number(bad)} flagged</span></p>
    <div class="actions">
      ${ENDINGS.map(
        ([status, key, label, kind]) => html`<${Button}
          key=${status}
          kind=${kind}
          disabled=${!canSend}
          title=${canSend ? undefined : "Your token lacks the scope reviews:write"}
          onClick=${() => onFinish(status)}
        >${label} <${Key}>${key}<//><//>`,
      )}
    </div>
    <progress max=${sample.sample.length} value=${decided} aria-label="Decided outputs"></progress>
    <p class="review-bound" role="status">${bound}</p>
    ${sent.isApproved && html`<p class="review-outside">${HALF_SENT}</p>`}
    ${outside && html`<p class="review-outside">${outside}. They are sent, too.</p>`}
    <${Since} ...${{ sample, later, onRenew }} />
    <${Sections} ...${{ sample, isDone: decided === sample.sample.length, ...rest }} />
  </section>`;
}

/** What was stored since the sample. The review does not cover it. */
function Since({ sample, later, onRenew }) {
  const counts = [
    ["changed", sample.sample.filter((one) => later.later[one.output_id] ?? one.stored > sample.cursor).length],
    ["deleted or too large", sample.chosen - sample.sample.length + later.deleted.length],
  ];
  const facts = counts.filter(([, count]) => count > 0).map(([what, count]) => `${plural(count, "output")} of it ${what}`);
  const now = later.outputs ?? sample.now;
  if (now !== sample.outputs) facts.push(`the job has ${plural(now, "output")} instead of ${number(sample.outputs)}`);
  if (later.error) facts.push("more could not be read");
  return facts.length > 0 && html`<p class="review-outside">
      Since the sample (<${Time} at=${sample.cursor} />): ${facts.join(", ")}. This review does not cover it. <${Button} small onClick=${onRenew}>New sample<//>
    </p>`;
}

/** The parts of the sample: a button for each shows its first open output. */
function Sections({ sample, isDone, group, job, outputs, output, decisions, onShow }) {
  const parts = Map.groupBy(outputs, (one) => sectionOf(sample, one));
  const options = [...parts].map(([name, part]) => [name, `${number(part.length)} ${name}`]);
  const show = (name) => onShow(outputs.indexOf(parts.get(name).find((one) => !isDecided(decisions.get(one.output_id))) ?? parts.get(name)[0]));
  const unapproved = href(["groups", group, "outputs"], { job_id: job, approved: "false" });
  const mix = isWhole(sample)
    ? "This is the whole job, changed outputs first."
    : html`Random outputs come last, changed or not: only they count for the statement above. <a href=${unapproved}>Show all that are not approved</a>`;
  return html`<div class="review-mix">
    <${Choice} label="Part of the sample" value=${sectionOf(sample, output)} onValue=${show} options=${options} />
    ${isDone ? html`<p class="review-done">All outputs of the sample are decided. Send the review.</p>` : html`<p class="muted">${mix}</p>`}
  </div>`;
}

export function Toolbar({ actions, at, outputs, work, onlyChanged }) {
  const why = whyNoDiff(outputs[at]);
  const isFlagged = isBad(work.decisions.get(outputs[at].output_id));
  return html`<div class="review-tools" role="group" aria-label="Decision" onKeyDown=${(event) => event.repeat && event.key === "Enter" && event.preventDefault()}>
    <${Button} kind=${isFlagged ? undefined : "primary"} icon="check" onClick=${actions.accept}>OK <${Key}>a<//><//>
    <${Button} onClick=${actions.flag}>Flag <${Key}>f<//><//>
    <${Button} onClick=${actions.comment}>Note <${Key}>c<//><//>
    <${Button} disabled=${!work.canUndo} onClick=${actions.undo}>Undo <${Key}>u<//><//>
    <${Button} aria-pressed=${onlyChanged && !why} disabled=${Boolean(why)} title=${why} onClick=${actions.toggle}>Only changed <${Key}>d<//><//>
    <${Button} onClick=${actions.open}>Source <${Key}>o<//><//>
    <span class="review-move">
      <${Button} kind="quiet" icon="back" aria-label="Previous output" title="Previous output (k)" disabled=${at === 0} onClick=${actions.previous} />
      <span class="muted">${at + 1} of ${outputs.length}</span>
      <${Button} kind=${isFlagged ? "primary" : undefined} aria-label="Next output" disabled=${at === outputs.length - 1} onClick=${actions.next}>Next <${Key}>j<//><//>
    </span>
  </div>`;
}
