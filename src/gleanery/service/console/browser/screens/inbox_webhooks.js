// The part of the inbox about webhooks that the service has disabled, or that fail.

import { html } from "../vendor/preact.js";
import { useLoad } from "../load.js";
import { href } from "../router.js";
import { Problem } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, Time } from "../ui/text.js";
import { State, hostOf, loadWebhooks, nameOf, needsHelp, rights } from "./webhooks.js";

/** Returns the webhooks that a person should look at, as useLoad does; none if the token may not list them. */
export function useFailingWebhooks(session) {
  return useLoad(async (signal) => (rights(session).canRead ? (await loadWebhooks(signal)).filter(needsHelp) : []), []);
}

/** Nothing, unless a webhook fails. */
export function WebhooksPanel({ state: { data, error, reload } }) {
  if (!data?.length) return html`<${Problem} error=${error} onRetry=${reload} />`;
  return html`<${Panel} flush title="Webhooks that fail"><ul class="inbox-list">${data.map((one) => html`<${Failing} key=${one.id} webhook=${one} />`)}</ul><//>`;
}

function Failing({ webhook }) {
  const { description, disabled_date: at, disabled_reason: reason } = webhook;
  return html`<li>
    <a class="inbox-row inbox-small" data-row href=${href(["webhooks", webhook.id])}>
      <span class="inbox-name">
        <strong><${Text}>${nameOf(webhook)}<//></strong>
        ${description && html`<span class="muted"><${Text}>${hostOf(webhook)}<//></span>`}
      </span>
      <span class="inbox-when">${at && html`<${Time} at=${at} />`}</span>
      <span class="inbox-changes"><${State} webhook=${webhook} /></span>
      ${reason && html`<span class="inbox-words"><${Text}>${reason}<//></span>`}
    </a>
  </li>`;
}
