// The end of a review: a dialog that shows what will be sent, and the sending.

import { html, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { plural } from "../format.js";
import { useAction } from "../load.js";
import { go } from "../router.js";
import { Button, Checkbox, Choice, Field, StatusBadge } from "../ui/controls.js";
import { Dialog } from "../ui/dialog.js";
import { Empty, Problem, notify } from "../ui/feedback.js";
import { Facts } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { Findings, Latest } from "./review_history.js";
import { sendReview } from "./review_sending.js";

const TITLES = { approved: "Approve the job", changes_requested: "Request changes", rejected: "Reject the job" };

/** Says what a review of the whole job, or of its flagged outputs, does. */
function effectOf(status, sample, isOfFlagged) {
  if (status === "approved") return `Approves all ${plural(sample.outputs, "output")} as they were when the sample was read. Later values stay unapproved.`;
  const effect = status === "rejected" ? "Rejects the outputs." : "Sends the outputs back for changes.";
  if (isOfFlagged) return `${effect} The others stay as they are.`;
  const isApproved = sample.sample.some((one) => one.approval !== "none");
  return isApproved ? `${effect} Takes their approval back, so the approved view no longer has them.` : effect;
}

/** summary: what is sent, and what it says about the job. sent: what was sent before an error; key: the name of that. */
export function Finish({ status, group, job, sample, summary, newer, sent, sendingKey, onFailed, onClose, onSent }) {
  const { findings, flagged } = summary;
  const isApproval = status === "approved";
  const repeated = sent.open?.status === status ? sent.open.body : null; // the service may have it
  const [text, setText] = useState("");
  const comment = repeated?.comment ?? text;
  const [onlyFlagged, setOnlyFlagged] = useState(true);
  const [refusal, setRefusal] = useState(); // a newer one, about which the person was asked
  const bodies = reviewsOf({ status, job, comment, as_of: sample.cursor, findings, flagged, onlyFlagged });
  const isRest = sent.isApproved && bodies.length === 2;
  const { submit, isBusy, error } = useAction(async () => {
    if (isApproval && !isRest) {
      const found = refusalSince(await get(path`console/api/reviews/${group}`, { job_id: job }), sample.about.known);
      setRefusal(found);
      if (found && found.review_id !== refusal?.review_id) return;
    }
    let results;
    try {
      results = await sendReview(sendingKey, group, status, bodies);
    } catch (problem) {
      onFailed();
      throw problem;
    }
    await onSent(await outcome(group, job, status, results));
  });
  const close = () => isBusy || onClose();
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    // Chromium closes a dialog at the second Escape without asking.
    if (event.key === "Escape" && isBusy) event.preventDefault();
  };
  const isOfFlagged = !isApproval && onlyFlagged && flagged.length > 0;
  const verb = { approved: "Approve", changes_requested: "Send back", rejected: "Reject" }[status];
  const label = isRest ? "Send the flagged outputs back" : `${verb} ${plural(isOfFlagged ? flagged.length : sample.outputs, "output")}${refusal ? " anyway" : ""}`;
  const hint = repeated ? "The last attempt may have arrived. So exactly the same is sent again, and stored once." : "May be empty. Ctrl+Enter sends the review.";
  const buttons = html`<${Button} onClick=${close} aria-disabled=${isBusy ? "true" : undefined}>Cancel<//>
    <${Button} kind=${isApproval ? "primary" : "danger"} type="submit" form="review-finish" isBusy=${isBusy}>${label}<//>`;
  return html`<${Dialog} title=${TITLES[status]} onClose=${close} actions=${buttons}>
    <form id="review-finish" onSubmit=${submit} onKeyDown=${onKeyDown}>
      <p>${effectOf(status, sample, isOfFlagged)}</p>
      ${isApproval && summary.warning && html`<p class="warning">${summary.warning}</p>`}
      ${(refusal ?? newer) && html`<p class="review-outside" role="status">Reviewed since: <${Latest} review=${refusal ?? newer} />${refusal && " Approve anyway?"}</p>`}
      <${About} ...${{ status, job, sample, summary }} />
      ${findings.length > 0 && html`<div><h3>${plural(findings.length, "finding")}</h3><${Findings} group=${group} findings=${findings} outputs=${sample.sample} limit=${8} /></div>`}
      ${flagged.length > 0 && html`<${FlaggedOnly} ...${{ isApproval, sample, flagged, onlyFlagged, setOnlyFlagged }} />`}
      <${Field} label="Comment" hint=${hint}>
        ${(attributes) => html`<textarea ...${attributes} autofocus readonly=${Boolean(repeated)} rows="2" maxlength="10000" value=${comment} onInput=${(event) => setText(event.target.value)}></textarea>`}
      <//>
      <${Problem} error=${error} />
    </form>
  <//>`;
}

function About({ status, job, sample, summary }) {
  const rows = [
    ["Job", html`<${Text}>${job}<//>`],
    ["New status", html`<${StatusBadge} status=${status} />`],
    ["Sample", summary.seen],
    ["Result", summary.bound],
    ["Values until", html`<${Time} at=${sample.cursor} />`],
  ];
  return html`<${Facts} rows=${rows} />`;
}

function FlaggedOnly({ isApproval, sample, flagged, onlyFlagged, setOnlyFlagged }) {
  const count = plural(flagged.length, "flagged output");
  if (isApproval) {
    return html`<div>
      <${Checkbox} label=${`Send the ${count} back`} checked=${onlyFlagged} onValue=${setOnlyFlagged} />
      <p class="hint">${onlyFlagged
        ? "The job is approved, then these are sent back in a second review. A client of the approved view can see them in between."
        : "The flagged outputs are approved, too."}</p>
    </div>`;
  }
  const options = [[true, `Only the ${count}`], [false, `All ${plural(sample.outputs, "output")}`]];
  return html`<div class="field"><h3>Applies to</h3><${Choice} label="Outputs" value=${onlyFlagged} onValue=${setOnlyFlagged} options=${options} /></div>`;
}

/** Returns the newest review after a known one that refuses outputs, unless the whole job was approved after it. */
function refusalSince({ reviews }, known) {
  const end = reviews.findIndex((one) => one.review_id === known || (one.is_of_job && one.status === "approved"));
  return reviews.slice(0, end < 0 ? undefined : end).find((one) => one.status === "rejected" || one.status === "changes_requested");
}

/** Returns the bodies of the requests: one review, or two if a job is approved without its flagged outputs. */
export function reviewsOf({ status, job, comment, as_of, findings, flagged, onlyFlagged }) {
  const body = { job_id: job, status, comment: comment.trim(), as_of, findings };
  if (!flagged.length || !onlyFlagged) return [body];
  if (status !== "approved") return [{ ...body, output_ids: flagged }];
  return [{ ...body, findings: [] }, { ...body, status: "changes_requested", output_ids: flagged }];
}

/** Returns what happened, in words. Never throws: the reviews are stored. */
async function outcome(group, job, status, results) {
  const { isOfJob, findings, gone, sentBack, skipped } = results.at(-1);
  const parts = [];
  if (status === "approved") parts.push(`Job ${job} is approved.`);
  else if (isOfJob) parts.push(`Job ${job} is ${status === "rejected" ? "rejected" : "sent back"}, with ${plural(findings, "finding")}.`);
  if (sentBack) parts.push(`${plural(sentBack, "output")} of job ${job} ${sentBack === 1 ? "is" : "are"} sent back.`);
  if (gone) parts.push(`${plural(gone, "flagged output")} no longer ${gone === 1 ? "exists" : "exist"}.`);
  if (status === "approved") parts.push(await sayLater(group, job, sentBack));
  else if (skipped) parts.push(`${plural(skipped, "flagged output")} changed later: review the job again.`);
  return parts.filter(Boolean).join(" ");
}

async function sayLater(group, job, sentBack) {
  try {
    const { outputs, approved } = await get(path`console/api/reviews/${group}`, { job_id: job });
    const later = outputs - approved - sentBack;
    return later > 0 && `${plural(later, "output")} arrived or changed later and ${later === 1 ? "is" : "are"} not approved: review the job again.`;
  } catch {
    return "Whether outputs arrived or changed later could not be read.";
  }
}

/** What another tab shows after a review was sent. */
export function Sent({ history, group, job }) {
  const newest = history.data?.reviews[0];
  return html`<${Empty} icon="check" title="This review was sent in another tab">
    ${newest && html`<p><${Latest} review=${newest} /></p>`}
    <p class="actions review-sent">
      <${Button} kind="primary" onClick=${() => goOn(group, job)}>Next job<//>
      <${Button} onClick=${() => location.reload()}>Start another review<//>
    </p>
  <//>`;
}

/** Shows the next job that waits for a review, or the inbox. text: what happened before. */
export async function goOn(group, job, text) {
  let next;
  try {
    const { waiting } = await get("console/api/inbox");
    next = waiting?.jobs.find((one) => one.group_id !== group || one.job_id !== job);
  } catch {
    next = undefined; // the inbox says what is wrong
  }
  if (text) notify(next ? `${text} Next: job ${next.job_id}.` : text, { seconds: 12 });
  if (next) go(["groups", next.group_id, "review", next.job_id]);
  else go(["inbox"]);
}
