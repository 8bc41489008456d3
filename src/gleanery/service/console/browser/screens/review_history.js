// The history of the reviews of a job.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { StatusBadge } from "../ui/controls.js";
import { Loaded } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, Time, safeUrl } from "../ui/text.js";
import { fieldName } from "../ui/value.js";

export function History({ state, ...about }) {
  return html`<${Panel} title="History of reviews" class="review-history">
    <${Loaded} state=${state}>
      ${({ reviews }) =>
        reviews.length
          ? html`<ol>${reviews.map((review) => html`<${Review} key=${review.review_id} ...${{ review, ...about }} />`)}</ol>`
          : html`<p class="muted">Nobody has reviewed this job.</p>`}
    <//>
  <//>`;
}

function Review({ review, ...about }) {
  const { findings } = review;
  return html`<li>
    <p><${Latest} review=${review} /></p>
    ${review.comment && html`<p class="review-said"><${Text}>${review.comment}<//></p>`}
    ${findings.length > 0 &&
    html`<details>
      <summary>${plural(findings.length, "finding")}${review.has_more_findings ? " and more" : ""}</summary>
      <${Findings} ...${{ findings, ...about }} />
    </details>`}
    ${!findings.length && review.has_more_findings && html`<p class="muted">Too many findings to show here.</p>`}
  </li>`;
}

/** A review in one line: its status, its time and who made it. */
export function Latest({ review }) {
  return html`<${StatusBadge} status=${review.status} /> <span class="muted"
    >${!review.is_of_job && "single outputs "}<${Time} at=${review.review_date} /> ${review.person ? html`by <${Text}>${review.person}<//>` : "with a token"}</span>`;
}

/** A list of findings; with limit, only the first ones. outputs: those of the sample, which are shown with their page. */
export function Findings({ findings, group, outputs, limit = 50 }) {
  const urls = new Map(outputs.map((one) => [one.output_id, safeUrl(one.source_url)]));
  const nameOf = (id) => {
    const url = urls.get(id);
    return url ? url.host + url.pathname + url.search : `output ${id.slice(-8)}`;
  };
  return html`<ul class="review-findings">
    ${findings.slice(0, limit).map(
      ({ output_id, path, note }) => html`<li>
        <a href=${href(["groups", group, "outputs", output_id])}><${Text}>${nameOf(output_id)}<//></a>${" "}
        <strong>${path === null ? "whole output" : html`<${Text}>${fieldName(path)}<//>`}</strong>
        ${note && html` <${Text}>${note}<//>`}
      </li>`,
    )}
    ${findings.length > limit && html`<li class="muted">and ${findings.length - limit} more</li>`}
  </ul>`;
}
