// A row of the inbox: a job that waits for a review.

import { html } from "../vendor/preact.js";
import { atMost, number } from "../format.js";
import { href } from "../router.js";
import { Badge } from "../ui/controls.js";
import { Share } from "../ui/share.js";
import { Text, Time } from "../ui/text.js";

export function WaitingJob({ job }) {
  return html`<li>
    <a class="inbox-row" data-row href=${href(["groups", job.group_id, "review", job.job_id])}>
      <span class="inbox-name">
        <strong><${Text}>${job.job_id}<//></strong>
        <span class="muted"><${Text}>${job.group_id}<//></span>
      </span>
      <span class="inbox-when"><span class="visually-hidden">waits since </span><${Time} at=${job.waits_since} /></span>
      <span class="inbox-changes">
        <${Changes} job=${job} />
      </span>
      <span class="inbox-share"><${Share} part=${job.approved} whole=${job.outputs} noun="approved" /></span>
      <span class="inbox-review">${job.review ? html`<${LatestReview} review=${job.review} />` : "Never reviewed"}</span>
    </a>
  </li>`;
}

/** What differs from the last approved state. */
function Changes({ job }) {
  const open = job.outputs - job.approved;
  return html`
    ${job.new === null && html`<${Badge} tone="info">${number(open)} not approved<//>`}
    ${job.new > 0 && html`<${Badge} tone="info">${number(job.new)} new<//>`}
    ${job.changed.count > 0 && html`<${Badge} tone="warn">${atMost(job.changed)} changed<//>`}
    ${job.removed.count > 0 && html`<${Badge} tone="bad">${atMost(job.removed)} removed<//>`}
  `;
}

const STATUS = {
  approved: "Approved",
  changes_requested: "Sent back",
  rejected: "Rejected",
  in_review: "In review since",
  pending: "Pending since",
};

function LatestReview({ review }) {
  return html`${STATUS[review.status]} <${Time} at=${review.created_at} />
    ${review.person && html` by <${Text}>${review.person}<//>`}
    ${review.comment && html`: “<${Text}>${review.comment}<//>”`}`;
}
