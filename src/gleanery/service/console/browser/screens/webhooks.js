// All webhooks: the addresses that get events, and how they respond.

import { html, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { lasting, plural } from "../format.js";
import { useKeys, useRowKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { go, href } from "../router.js";
import { Badge, Badges, Button } from "../ui/controls.js";
import { Empty, Loaded, NoScope } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time, safeUrl } from "../ui/text.js";
import { FORMATS, Secret, WebhookForm } from "./webhooks_form.js";

const DAY = 86_400_000;
const SHOWN_GROUPS = 2;

export const NO_SCOPE = html`<${NoScope} what="list webhooks" scope="webhooks:read" />`;

/** Returns what the session of the console may do with webhooks. */
export function rights({ scopes }) {
  return { canRead: scopes.includes("webhooks:read"), canWrite: scopes.includes("webhooks:write") };
}

export async function loadWebhooks(signal) {
  return (await get("v1/webhooks", {}, signal)).webhooks;
}

export const hostOf = ({ url }) => safeUrl(url)?.host ?? url;
export const nameOf = (webhook) => webhook.description || hostOf(webhook);

/** Returns whether a person should look at a webhook: it is disabled, or has failed for more than a day. */
export function needsHelp({ status, failing_since: since }) {
  return status === "disabled" || (since !== null && Date.now() - new Date(since) > DAY);
}

export function State({ webhook: { status, failing_since: since } }) {
  if (status === "disabled") return html`<${Badge} tone="bad">Disabled<//>`;
  return since ? html`<${Badge} tone="warn">Failing for <${Time} at=${since} show=${lasting} /><//>` : html`<${Badge} tone="good">Enabled<//>`;
}

export function Webhooks({ session }) {
  const { canRead, canWrite } = rights(session);
  return canRead ? html`<${All} canWrite=${canWrite} />` : html`<${Page} title="Webhooks">${NO_SCOPE}<//>`;
}

function All({ canWrite }) {
  const state = useLoad(loadWebhooks, []);
  const [dialog, setDialog] = useState(null);
  const [created, setCreated] = useState(null);
  const create = () => setDialog("create");
  useKeys(canWrite ? [{ keys: ["n"], label: "Create a webhook", run: create }] : []);
  useRowKeys();
  const button = canWrite && html`<${Button} kind="primary" icon="plus" onClick=${create}>Create webhook<//>`;
  return html`<${Page} title="Webhooks" note="Addresses of other systems and chats that get events." actions=${button}>
    <${Loaded} state=${state}>
      ${(webhooks) => (webhooks.length ? html`<${Panel} flush><${Table} class="webhooks" label="Webhooks" columns=${COLUMNS} rows=${webhooks} id="id" /><//>` : NONE)}
    <//>
    ${dialog && html`<${WebhookForm} onClose=${() => setDialog(null)} onDone=${setCreated} />`}
    ${created && html`<${Secret} webhook=${created} title="The webhook is created" onClose=${() => go(["webhooks", created.id])} />`}
  <//>`;
}

const NONE = html`<${Empty} icon="webhooks" title="No webhooks yet">A webhook tells another system or a chat that outputs have changed, a run has ended, or somebody has reviewed a job.<//>`;

const COLUMNS = [
  ["Webhook", (one) => html`<div class="webhooks-name">
    <a class="groups-name" data-row href=${href(["webhooks", one.id])}><${Text}>${nameOf(one)}<//></a>
    <small class="muted">${one.description && html`<${Text}>${hostOf(one)}<//> · `}${FORMATS[one.format] ?? one.format}</small>
  </div>`],
  ["Events", (one) => html`<${Badges} texts=${one.events} />`],
  ["Groups", (one) => html`<${Groups} groups=${one.groups} />`],
  ["State", (one) => html`<div><${State} webhook=${one} />${one.disabled_reason && html`<small class="webhooks-below muted"><${Text}>${one.disabled_reason}<//></small>`}</div>`],
];

function Groups({ groups }) {
  if (!groups) return html`<span class="muted">all</span>`;
  return groups.length > SHOWN_GROUPS ? plural(groups.length, "group") : html`<${Text}>${groups.join(", ")}<//>`;
}
