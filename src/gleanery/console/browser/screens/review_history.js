// The history of the reviews of a job.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { StatusBadge } from "../ui/controls.js";
import { Loaded } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, Time } from "../ui/text.js";

export function History({ state }) {
  return html`<${Panel} title="History of reviews" class="review-history">
    <${Loaded} state=${state}>
      ${({ reviews }) =>
        reviews.length
          ? html`<ol>${reviews.map((review) => html`<${Review} key=${review.review_id} review=${review} />`)}</ol>`
          : html`<p class="muted">Nobody has reviewed this job.</p>`}
    <//>
  <//>`;
}

function Review({ review }) {
  const { findings } = review;
  return html`<li>
    <div class="review-badges">
      <${StatusBadge} status=${review.status} />
      ${!review.is_of_job && html`<span class="muted">single outputs</span>`}
      <span class="muted"><${Time} at=${review.review_date} /></span>
    </div>
    <p>${review.person ? html`<${Text}>${review.person}<//>` : html`<span class="muted">with a token</span>`}</p>
    ${review.comment && html`<p class="review-said"><${Text}>${review.comment}<//></p>`}
    ${findings.length > 0 &&
    html`<details>
      <summary>${plural(findings.length, "finding")}${review.has_more_findings ? " and more" : ""}</summary>
      <${Findings} findings=${findings} />
    </details>`}
    ${!findings.length && review.has_more_findings && html`<p class="muted">Too many findings to show here.</p>`}
  </li>`;
}

/** A list of findings; with limit, only the first ones. */
export function Findings({ findings, limit = 50 }) {
  return html`<ul class="review-findings">
    ${findings.slice(0, limit).map(
      ({ output_id, path, note }) => html`<li>
        <code>${output_id.slice(0, 8)}</code> <strong>${path === null ? "whole output" : html`<${Text}>${path}<//>`}</strong>
        ${note && html` <${Text}>${note}<//>`}
      </li>`,
    )}
    ${findings.length > limit && html`<li class="muted">and ${findings.length - limit} more</li>`}
  </ul>`;
}
