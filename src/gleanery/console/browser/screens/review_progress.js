// The progress of a review, the buttons that end it, and the buttons of one decision.

import { html } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { Button, Key } from "../ui/controls.js";
import { ENDINGS } from "./review_actions.js";
import { describeBound } from "./review_bound.js";
import { findingsOf, isBad, isDecided } from "./review_decisions.js";
import { HALF_SENT, SENT } from "./review_sending.js";

/** Flags on outputs outside of the sample are sent, too: the review is about the whole job. */
export function toSend(outputs, decisions) {
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

export function Summary({ sample, work, at, canSend, sent, onFinish }) {
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
      ${sent.isApproved && html`<p class="review-outside">${HALF_SENT}</p>`}
      ${sent.isFinished && html`<p class="review-outside">${SENT} <${Button} small onClick=${() => location.reload()}>Start another review<//></p>`}
      ${outside > 0 && html`<p class="review-outside">${sayOutside(outside)}. They are sent, too.</p>`}
      ${isDone && html`<p class="review-done">All outputs of the sample are decided. Send the review.</p>`}
    </div>
    <div class="actions">
      ${ENDINGS.map(
        ([status, key, label, kind]) => html`<${Button}
          key=${status}
          kind=${kind}
          disabled=${!canSend || sent.isFinished}
          title=${canSend ? undefined : "Your token lacks the scope reviews:write"}
          onClick=${() => onFinish(status)}
        >${label} <${Key}>${key}<//><//>`,
      )}
    </div>
  </section>`;
}

export function Toolbar({ actions, at, outputs, work, onlyChanged }) {
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
