// The end of a review: a dialog that shows what will be sent, and the sending.

import { html, useState } from "../vendor/preact.js";
import { get, path, post } from "../api.js";
import { plural } from "../format.js";
import { useAction } from "../load.js";
import { go } from "../router.js";
import { Button, Checkbox, Field, StatusBadge } from "../ui/controls.js";
import { Dialog } from "../ui/dialog.js";
import { Problem, notify } from "../ui/feedback.js";
import { Facts } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { Findings } from "./review_history.js";

const TITLES = { approved: "Approve the job", changes_requested: "Request changes", rejected: "Reject the job" };
const EFFECTS = {
  approved: "Approves all outputs of the job as they were when the sample was read. Later values stay unapproved.",
  changes_requested: "Takes the approval of the outputs back, and asks the scraper's authors for changes.",
  rejected: "Takes the approval of the outputs back.",
};

export const HALF_SENT = "The job IS approved, but its flagged outputs are not sent back yet.";

/** flagged: output_ids. seen: what was decided, in words. sent: what an earlier dialog has sent before an error. */
export function Finish({ status, group, job, sample, findings, flagged, seen, sent, onApproved, onClose, onSent }) {
  const [comment, setComment] = useState("");
  const [onlyFlagged, setOnlyFlagged] = useState(status === "approved");
  const all = reviewsOf({ status, job, comment, as_of: sample.cursor, findings, flagged, onlyFlagged });
  const isRest = sent.isApproved && all.length === 2;
  const bodies = isRest ? all.slice(1) : all;
  const { run, isBusy, error } = useAction(async () => {
    const results = [];
    for (const body of bodies) {
      const isSecond = isRest || results.length === 1;
      results.push(await sendKnown(group, body, sent.keys).catch((problem) => {
        throw isSecond ? new Error(`${HALF_SENT} ${problem.message}`) : problem;
      }));
      if (all.length === 2 && !isSecond) onApproved();
    }
    await onSent(await outcome(group, job, status, results));
  });
  const close = () => isBusy || onClose();
  const submit = (event) => {
    event.preventDefault();
    run();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    // Chromium closes a dialog at the second Escape without asking.
    if (event.key === "Escape" && isBusy) event.preventDefault();
  };
  const label = isRest ? "Send the flagged outputs back" : TITLES[status];
  return html`<${Dialog} title=${TITLES[status]} onClose=${close}>
    <form class="review-finish" onSubmit=${submit} onKeyDown=${onKeyDown}>
      <p>${EFFECTS[status]}</p>
      <${About} ...${{ status, job, sample, seen }} />
      ${findings.length > 0 && html`<div><h3>${plural(findings.length, "finding")}</h3><${Findings} findings=${findings} limit=${8} /></div>`}
      ${flagged.length > 0 && html`<${FlaggedOnly} ...${{ status, flagged, onlyFlagged, setOnlyFlagged }} />`}
      <${Field} label="Comment" hint="May be empty. Ctrl+Enter sends the review.">
        ${(attributes) => html`<textarea ...${attributes} autofocus=${status !== "approved"} rows="2" maxlength="10000" value=${comment} onInput=${(event) => setComment(event.target.value)}></textarea>`}
      <//>
      <${Problem} error=${error} />
      <div class="review-send">
        <${Button} onClick=${close} aria-disabled=${isBusy ? "true" : undefined}>Cancel<//>
        <${Button} kind=${status === "approved" ? "primary" : "danger"} type="submit" autofocus=${status === "approved"} isBusy=${isBusy}>${label}<//>
      </div>
    </form>
  <//>`;
}

function About({ status, job, sample, seen }) {
  const rows = [
    ["Job", html`<${Text}>${job}<//>`],
    ["Status", html`<${StatusBadge} status=${status} />`],
    ["Sample", seen],
    ["Values until", html`<${Time} at=${sample.cursor} /> <code class="muted">as_of ${sample.cursor}</code>`],
  ];
  return html`<${Facts} rows=${rows} />`;
}

function FlaggedOnly({ status, flagged, onlyFlagged, setOnlyFlagged }) {
  const count = plural(flagged.length, "flagged output");
  if (status === "approved") {
    return html`<div>
      <${Checkbox} label=${`Send the ${count} back`} checked=${onlyFlagged} onValue=${setOnlyFlagged} />
      <p class="hint">${onlyFlagged
        ? "The job is approved, then these are sent back in a second review. A client of the approved view can see them in between."
        : "The flagged outputs are approved, too."}</p>
    </div>`;
  }
  return html`<div>
    <${Checkbox} label=${`Send back the ${count} only`} checked=${onlyFlagged} onValue=${setOnlyFlagged} />
    <p class="hint">${onlyFlagged ? "The other outputs keep their approval as it is." : "All outputs of the job are sent back."}</p>
  </div>`;
}

/** Returns the bodies of the requests: one review, or two if a job is approved without its flagged outputs. */
export function reviewsOf({ status, job, comment, as_of, findings, flagged, onlyFlagged }) {
  const body = { job_id: job, status, comment: comment.trim(), as_of, findings };
  if (!flagged.length || !onlyFlagged) return [body];
  if (status !== "approved") return [{ ...body, output_ids: flagged }];
  return [{ ...body, findings: [] }, { ...body, status: "changes_requested", output_ids: flagged }];
}

/** Sends a review. A repetition after an error has the same key, so the review is added once. */
function sendOnce(group, body, keys) {
  const text = JSON.stringify(body);
  if (!keys.has(text)) keys.set(text, crypto.randomUUID());
  return post(path`v1/reviews/${group}`, body, { headers: { "idempotency-key": keys.get(text) } });
}

/** Sends a review without outputs that the job no longer has. Returns what it was about, in numbers. */
async function sendKnown(group, body, keys) {
  const gone = new Set();
  for (let rest = body; ; ) {
    const result = { isOfJob: !body.output_ids, findings: rest.findings.length, gone: gone.size, sentBack: 0, skipped: 0 };
    if (rest.output_ids?.length === 0) return result; // nothing is left to send back
    try {
      const { skipped_output_ids: skipped = [] } = await sendOnce(group, rest, keys);
      const sentBack = (rest.output_ids?.length ?? 0) - skipped.length;
      return { ...result, sentBack, skipped: skipped.length };
    } catch (error) {
      const unknown = unknownOutputs(rest, error);
      if (!unknown.length) throw error;
      for (const id of unknown) gone.add(id);
      rest = { ...rest, findings: rest.findings.filter((one) => !gone.has(one.output_id)) };
      if (rest.output_ids) rest.output_ids = rest.output_ids.filter((id) => !gone.has(id));
    }
  }
}

/** Returns the outputs that an error is about, because they were deleted. */
function unknownOutputs(body, error) {
  const details = error.details?.filter((detail) => detail.type === "unknown_output") ?? [];
  return details.map(({ loc: [, member, at] }) => (member === "findings" ? body.findings[at].output_id : body.output_ids[at]));
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

/** Shows the next job that waits for a review, or the inbox. */
export async function goOn(group, job, text) {
  let next;
  try {
    const { waiting } = await get("console/api/inbox");
    next = waiting?.jobs.find((one) => one.group_id !== group || one.job_id !== job);
  } catch {
    next = undefined; // the inbox says what is wrong
  }
  notify(next ? `${text} Next: job ${next.job_id}.` : text, { seconds: 12 });
  if (next) go(["groups", next.group_id, "review", next.job_id]);
  else go(["inbox"]);
}
