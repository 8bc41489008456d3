// One webhook: its settings, what can be done with it, and its deliveries.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { BACKGROUND, get, path, post, remove } from "../api.js";
import { fullTime, lasting } from "../format.js";
import { useKeys, useRowKeys } from "../keys.js";
import { useAction, useReloadOnReturn } from "../load.js";
import { filledPage, usePages } from "../pages.js";
import { go, pushQuery } from "../router.js";
import { Badges, Button } from "../ui/controls.js";
import { Confirm } from "../ui/dialog.js";
import { Loaded, Problem, notify } from "../ui/feedback.js";
import { Page, Panel } from "../ui/page.js";
import { Facts } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { NO_SCOPE, State, nameOf, rights } from "./webhooks.js";
import { Deliveries, Summary } from "./webhooks_deliveries.js";
import { FORMATS, Secret, WebhookForm } from "./webhooks_form.js";

const CRUMBS = [["Webhooks", ["webhooks"]]];
const PAGE = 50, MAX_PAGE = 1000;
const SOON = 10_000, FIRST_PAUSE = 500, LONGEST_PAUSE = 15_000;

export function WebhookDetail({ webhook: id, query, session }) {
  const { canRead, canWrite } = rights(session);
  if (canRead) return html`<${Detail} ...${{ id, query, canWrite }} />`;
  return html`<${Page} title="Webhook" crumbs=${CRUMBS}>${NO_SCOPE}<//>`;
}

/** Returns the deliveries as usePages does, with the webhook in the first page. While one is about to be sent, it loads them again. */
function useDeliveries(id, filter) {
  const isTimed = useRef(false);
  const pause = useRef(FIRST_PAUSE);
  const count = useRef(0);
  const pages = usePages(
    async (cursor, signal) => {
      const headers = isTimed.current ? BACKGROUND : undefined;
      isTimed.current = false;
      const limit = cursor === null ? Math.min(Math.max(count.current, PAGE), MAX_PAGE) : PAGE;
      const load = (route, query) => get(path`v1/webhooks/${id}` + route, query, signal, headers);
      const read = async (next) => {
        const { deliveries, metadata } = await load("/deliveries", { ...filter, limit, cursor: next });
        return { items: deliveries, next: metadata.next_cursor };
      };
      const [webhook, page] = await Promise.all([cursor === null && load(""), filledPage(read, cursor)]);
      return { ...page, webhook };
    },
    [id, ...Object.values(filter)],
  );
  const { items, first, isLoading, reload } = pages;
  count.current = items.length;
  useEffect(() => {
    if (isLoading || first?.webhook?.status === "disabled" || !items.some((one) => one.next_attempt_date && new Date(one.next_attempt_date) - Date.now() < SOON)) return undefined;
    const timer = setTimeout(() => {
      if (document.hidden) return;
      isTimed.current = true;
      reload();
    }, pause.current);
    pause.current = Math.min(1.5 * pause.current, LONGEST_PAUSE);
    return () => clearTimeout(timer);
  }, [items, isLoading]);
  useReloadOnReturn(reload);
  const watch = () => {
    pause.current = FIRST_PAUSE;
    reload();
  };
  return { ...pages, watch };
}

function Detail({ id, query, canWrite }) {
  const pages = useDeliveries(id, { status: query.status, event: query.event });
  const [dialog, setDialog] = useState(null);
  const [secret, setSecret] = useState(null);
  const [tested, setTested] = useState(null);
  const webhook = pages.first?.webhook;
  const isDisabled = webhook?.status === "disabled";
  const test = useAction(async () => {
    const delivery = await post(path`v1/webhooks/${id}/test`);
    setTested(delivery.delivery_id);
    pushQuery({}); // so that the result is in the list
    pages.watch();
  });
  const enable = useAction(async () => {
    await post(path`v1/webhooks/${id}/enable`);
    notify("The webhook is enabled.");
    pages.watch();
  });
  const canTest = canWrite && webhook && !isDisabled;
  useKeys([
    { keys: ["e"], label: "Edit the webhook", run: () => canWrite && webhook && setDialog("edit") },
    { keys: ["t"], label: "Send a test", run: () => canTest && test.run() },
  ]);
  useRowKeys();
  const actions = canWrite && webhook && html`
    <${Button} icon="webhooks" isBusy=${test.isBusy} disabled=${!canTest} onClick=${() => test.run()}>Test<//>
    <${Button} onClick=${() => setDialog("edit")}>Edit<//>
    <${Button} icon="refresh" onClick=${() => setDialog("rotate")}>Rotate secret<//>
    <${Button} kind="danger" icon="trash" onClick=${() => setDialog("delete")}>Delete<//>`;
  return html`<${Page} title=${webhook ? nameOf(webhook) : "Webhook"} crumbs=${CRUMBS} note=${webhook && html`<${State} webhook=${webhook} />`} actions=${actions}>
    <${Problem} error=${test.error ?? enable.error} />
    <div role="status" class=${tested ? "" : "visually-hidden"}>${tested && html`<${TestResult} delivery=${pages.items.find((one) => one.delivery_id === tested)} />`}</div>
    <${Loaded} state=${pages}>
      ${() => html`<${Trouble} webhook=${webhook} enable=${canWrite && enable} />
        <${Settings} webhook=${webhook} />
        <${Deliveries} ...${{ webhook, pages, query, canWrite }} />`}
    <//>
    ${dialog && html`<${Dialogs} ...${{ dialog, webhook, onSecret: setSecret, onDone: pages.watch, onClose: () => setDialog(null) }} />`}
    ${secret && html`<${Secret} webhook=${secret} title="The secret is rotated" onClose=${() => setSecret(null)} />`}
  <//>`;
}

function TestResult({ delivery }) {
  const last = delivery?.attempts.at(-1);
  if (!last) return html`<p class="webhooks-test"><span class="spinner" aria-hidden="true"></span>The test waits for its result …</p>`;
  return html`<p class=${`webhooks-test ${last.error ? "bad" : "good"}`}>${last.error ? "The test has failed: " : "The test has arrived: "}<${Summary} attempt=${last} /></p>`;
}

/** Why the webhook gets no events, or soon will not. enable: the action, if the person may do that. */
function Trouble({ webhook: { status, disabled_date: at, disabled_reason: reason, failing_since: since }, enable }) {
  if (status === "disabled") {
    return html`<div class="warning webhooks-trouble">
      <p>The service disabled this webhook <${Time} at=${at} />: <${Text}>${reason}<//>. It gets no events until somebody enables it.</p>
      ${enable && html`<${Button} kind="primary" isBusy=${enable.isBusy} onClick=${() => enable.run()}>Enable<//>`}
    </div>`;
  }
  return since && html`<p class="warning">No attempt has succeeded for <${Time} at=${since} show=${lasting} />. The service tries again, and disables the webhook after 5 days.</p>`;
}

function Settings({ webhook }) {
  const { url, events, groups, format, headers, create_date: created, update_date: updated, old_secret_expires: expires } = webhook;
  return html`<${Panel} title="Settings">
    <${Facts}
      rows=${[
        ["URL", html`<code><${Text}>${url}<//></code>`],
        ["Format", FORMATS[format] ?? format],
        ["Events", html`<${Badges} texts=${events} />`],
        ["Groups", groups ? html`<${Badges} texts=${groups} />` : "all"],
        Object.keys(headers).length > 0 && ["Headers", html`<${Badges} texts=${Object.keys(headers)} />`],
        expires && ["Old secret", html`signs as well until <${Time} at=${expires} show=${fullTime} />`],
        ["Created", html`<${Time} at=${created} />`],
        updated !== created && ["Changed", html`<${Time} at=${updated} />`],
      ]}
    />
  <//>`;
}

function Dialogs({ dialog, webhook, onSecret, onDone, onClose }) {
  if (dialog === "edit") return html`<${WebhookForm} webhook=${webhook} onClose=${onClose} onDone=${() => (notify("The settings are saved."), onDone())} />`;
  const name = html`<strong><${Text}>${nameOf(webhook)}<//></strong>`;
  if (dialog === "rotate") {
    const rotate = async () => {
      onSecret(await post(path`v1/webhooks/${webhook.id}/rotate`));
      onDone();
    };
    return html`<${Confirm} title="Rotate the secret" label="Rotate secret" isHarmless action=${rotate} onClose=${onClose}>
      <p>${name} gets a new secret. For 24 hours, each delivery has a signature with both secrets, so give the new one to the receiver in this time.</p>
    <//>`;
  }
  const action = async () => {
    await remove(path`v1/webhooks/${webhook.id}`);
    notify("The webhook is deleted.");
    go(["webhooks"]);
  };
  return html`<${Confirm} title="Delete the webhook" label="Delete webhook" action=${action} onClose=${onClose}>
    <p>${name} is deleted with its secret and its deliveries. Events that wait are not sent. This cannot be undone.</p>
  <//>`;
}
