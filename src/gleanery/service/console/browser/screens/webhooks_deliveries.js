// The deliveries of a webhook, newest first, with the attempts of each.

import { html, useState } from "../vendor/preact.js";
import { path, post } from "../api.js";
import { fullTime, number, plural } from "../format.js";
import { useAction } from "../load.js";
import { More, NoMatch, Refresh } from "../pages.js";
import { href, pushQuery } from "../router.js";
import { Badge, Button, SelectField } from "../ui/controls.js";
import { Empty, notify } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, Time } from "../ui/text.js";
import { EVENTS } from "./webhooks_form.js";

const STATES = { waiting: ["info", "Waiting"], delivered: ["good", "Delivered"], failed: ["bad", "Failed"] };
const WIDTH = 5; // columns

export function Deliveries({ webhook, pages, query, canWrite }) {
  const [open, setOpen] = useState([]);
  const toggle = (id) => setOpen(open.includes(id) ? open.filter((one) => one !== id) : [...open, id]);
  const columns = [
    ["Event", (one) => html`<div><code>${one.event}</code>${one.group_id !== null && html`<a class="webhooks-below" href=${href(["groups", one.group_id])}><${Text}>${one.group_id}<//></a>`}</div>`],
    ["State", (one) => html`<${State} delivery=${one} isPaused=${webhook.status === "disabled"} />`],
    ["Last attempt", (one) => html`<${Attempted} delivery=${one} isOpen=${open.includes(one.delivery_id)} onToggle=${() => toggle(one.delivery_id)} />`],
    ["Time", (one) => html`<${Time} at=${one.create_date} />`, "time"],
    canWrite && ["", (one) => html`<${SendAgain} webhook=${webhook} delivery=${one} onSent=${pages.watch} />`, "buttons"],
  ];
  const below = (one) => open.includes(one.delivery_id) && html`<${Attempts} attempts=${one.attempts} />`;
  return html`<${Panel} flush title="Deliveries" actions=${html`<${Refresh} state=${pages} onClick=${pages.watch} />`}>
    <${Filters} query=${query} />
    ${pages.items.length
      ? html`<${Table} class="deliveries" label="Deliveries" columns=${columns} rows=${pages.items} id="delivery_id" below=${below} /><${More} pages=${pages} />`
      : query.status || query.event ? html`<${NoMatch} pages=${pages} noun="delivery" nouns="deliveries" />` : NONE}
  <//>`;
}

function Filters({ query }) {
  const change = (part) => pushQuery({ ...query, ...part });
  const events = new Set([...Object.keys(EVENTS), "test", ...(query.event ? [query.event] : [])]);
  return html`<div class="filters webhooks-filters" role="search" aria-label="Filters">
    <${SelectField} label="State" value=${query.status ?? ""} onValue=${(status) => change({ status })} options=${[["", "Any state"], ...Object.entries(STATES).map(([name, [, text]]) => [name, text])]} />
    <${SelectField} label="Event" value=${query.event ?? ""} onValue=${(event) => change({ event })} options=${[["", "All events"], ...[...events].map((name) => [name, name])]} />
  </div>`;
}

const NONE = html`<${Empty} icon="webhooks" title="No deliveries yet">An event appears here when it happens. It is kept for 30 days.<//>`;

function State({ delivery: { status, next_attempt_date: next }, isPaused }) {
  const [tone, text] = STATES[status] ?? [undefined, status];
  const when = isPaused ? "until the webhook is enabled" : html`next attempt ${new Date(next) > Date.now() ? html`<${Time} at=${next} />` : "soon"}`;
  return html`<div><${Badge} tone=${tone}>${text}<//>${next && html`<small class="webhooks-below muted">${when}</small>`}</div>`;
}

/** The status and the duration of an attempt, or why there was no response. */
export function Summary({ attempt: { status_code: status, duration_ms: duration, error } }) {
  return html`${status === null ? html`<${Text}>${error}<//>` : `status ${status}`} · ${number(duration)} ms`;
}

function Attempted({ delivery: { attempts }, isOpen, onToggle }) {
  if (!attempts.length) return html`<span class="muted">none yet</span>`;
  return html`<div class="webhooks-last"><span><${Summary} attempt=${attempts.at(-1)} /></span>
    <${Button} small data-row aria-expanded=${isOpen} onClick=${onToggle}>${plural(attempts.length, "attempt")}<//></div>`;
}

/** The row of a table below its delivery. */
function Attempts({ attempts }) {
  return html`<tr class="webhooks-attempts"><td colspan=${WIDTH}>
    <ul>${attempts.toReversed().map((one) => html`<li key=${one.date}>
      <p><${Time} at=${one.date} show=${fullTime} /> <${Badge} tone=${one.error ? "bad" : "good"}>${one.status_code ?? "No response"}<//> ${number(one.duration_ms)} ms</p>
      ${one.error && html`<p class="problem"><${Text}>${one.error}<//></p>`}
      ${one.response && html`<pre tabindex="0" role="group" aria-label="Response"><${Text}>${one.response}<//></pre>`}
    </li>`)}</ul>
  </td></tr>`;
}

function SendAgain({ webhook, delivery, onSent }) {
  const { run, isBusy } = useAction(async () => {
    try {
      await post(path`v1/webhooks/${webhook.id}/deliveries/${delivery.delivery_id}/redeliver`);
      notify("The event is sent again.");
    } catch (error) {
      notify(error.message, { tone: "bad" });
    }
    onSent();
  });
  return html`<${Button} small isBusy=${isBusy} disabled=${webhook.status === "disabled"} onClick=${() => run()}>Send again<//>`;
}
