// An alert: what is wrong and since when, and what a person can say about it. The inbox and the monitors of a group show it.

import { html, useState } from "../vendor/preact.js";
import { path, post } from "../api.js";
import { dayOf, duration, lasting, number, percent, plural } from "../format.js";
import { useAction } from "../load.js";
import { href } from "../router.js";
import { Badge, Button, Choice } from "../ui/controls.js";
import { Confirm, FormDialog } from "../ui/dialog.js";
import { Problem, notify } from "../ui/feedback.js";
import { Text, Time, visibleText } from "../ui/text.js";

/** The kinds of rules, with a short name of their alerts. */
export const KINDS = {
  no_run: "Overdue",
  failed_run: "Failed runs",
  few_outputs: "Few outputs",
  fill_rate: "Fill rate",
  kind_change: "Kind of values",
  rejected: "Rejected elements",
  missing: "Missing outputs",
  number_shift: "Shifted number",
  duplicates: "Duplicates",
  held_removal: "Held removal",
};
const WITH_LEVEL = ["few_outputs", "fill_rate", "kind_change", "number_shift"]; // a person can accept what the run was like
const LENGTHS = [["1", "1 day"], ["7", "1 week"], ["30", "1 month"]];
const DAY = 86_400_000;
const CLOSED = { over: "Closed: over", normal: "Closed: normal now", rule_removed: "Closed: rule removed" };

/** Returns what the session of the console may do with monitors. */
export function rights({ scopes }) {
  return { canRead: scopes.includes("monitors:read"), canWrite: scopes.includes("monitors:write") };
}

const isMuted = ({ muted_until: until }) => until !== null && new Date(until) > Date.now();

/**
 * An element of a list. to: the link of the sentence; without it, the sentence is text. chart: on its side.
 * about: more about it, below the sentence. children: below everything.
 */
export function Alert({ alert, to, about, chart, canWrite, onChanged, children }) {
  const sentence = html`<${Text}>${alert.message}<//>`;
  return html`<li class="alert">
    <div class="alert-words">
      ${to ? html`<a class="alert-sentence" data-row href=${to}>${sentence}</a>` : html`<strong class="alert-sentence">${sentence}</strong>`}
      <div class="alert-about">${about}<${States} alert=${alert} /><${Runs} alert=${alert} /></div>
    </div>
    ${chart && html`<div class="alert-chart">${chart}</div>`}
    ${children}
    ${canWrite && alert.state === "open" && html`<${Actions} alert=${alert} onChanged=${onChanged} />`}
  </li>`;
}

function States({ alert }) {
  const { state, acknowledged_date: at, acknowledged_by: by, muted_until: until } = alert;
  if (state === "closed") {
    return html`<${Badge}>${CLOSED[alert.close_reason]}<//>
      <span><${Time} at=${alert.close_date} />, after ${duration(alert.open_date, alert.close_date)}</span>`;
  }
  return html`<${Badge} tone=${at || isMuted(alert) ? "warn" : "bad"}>${KINDS[alert.kind] ?? alert.kind}<//>
    ${at && html`<${Badge} tone="info"><span>Acknowledged by <${Text}>${by}<//></span><//>`}
    ${isMuted(alert) && html`<${Badge}>Muted until ${dayOf(until)}<//>`}
    <span>for <${Time} at=${alert.open_date} show=${lasting} /></span>`;
}

function Runs({ alert }) {
  if (!alert.runs) return null;
  const { group_id: group, run_id: first, last_run_id: last } = alert;
  const link = (run, text) => html`<a href=${href(["groups", group, "runs", run])}>${text}</a>`;
  return html`<span>${plural(alert.runs, "run")}: ${first !== last && html`${link(first, "first")}, `}${link(last, first === last ? "see it" : "last")}</span>`;
}

const VALUES = {
  fill_rate: ({ usual, value }) => html`filled in <strong>${percent(value)}</strong>, usually ${percent(usual)}`,
  kind_change: ({ detail }) => detail,
  number_shift: ({ usual, value }) => html`median <strong>${number(value)}</strong>, usually ${number(usual)}`,
};

/** The fields that break the rule, with their usual and present values. */
export function FieldFacts({ alert: { kind, facts } }) {
  if (!facts.fields.length) return null;
  const more = facts.field_count - facts.fields.length;
  return html`<ul class="alert-fields">
    ${facts.fields.map((field) => html`<li key=${field.path}><code><${Text}>${field.path}<//></code> ${VALUES[kind]?.(field)}</li>`)}
    ${more > 0 && html`<li class="muted">and ${plural(more, "other field")}</li>`}
  </ul>`;
}

function Actions({ alert, onChanged }) {
  const [dialog, setDialog] = useState(null);
  const change = async (body, text) => {
    await post(path`v1/alerts/${alert.alert_id}`, body);
    notify(text);
    onChanged();
  };
  const isAcknowledged = alert.acknowledged_date !== null;
  const acknowledge = useAction(() => change({ acknowledged: !isAcknowledged }, isAcknowledged ? "The alert waits for somebody again." : "The alert is acknowledged."));
  const unmute = useAction(() => change({ muted_until: null }, "The alert is not muted any more."));
  const close = () => setDialog(null);
  const button = (label, { isBusy, run }) => html`<${Button} small isBusy=${isBusy} aria-label=${`${label}: ${visibleText(alert.message)}`} onClick=${run}>${label}<//>`;
  const open = (name) => ({ run: () => setDialog(name) });
  return html`<div class="alert-actions">
    ${button(isAcknowledged ? "Not acknowledged" : "Acknowledge", { ...acknowledge, run: () => acknowledge.run() })}
    ${isMuted(alert) ? button("Unmute", { ...unmute, run: () => unmute.run() }) : button("Mute", open("mute"))}
    ${WITH_LEVEL.includes(alert.kind) && button("Normal now", open("normal"))}
    <${Problem} error=${acknowledge.error ?? unmute.error} />
    ${dialog === "mute" && html`<${Mute} ...${{ alert, change }} onClose=${close} />`}
    ${dialog === "normal" && html`<${NormalNow} ...${{ alert, change }} onClose=${close} />`}
  </div>`;
}

function Mute({ alert, change, onClose }) {
  const [days, setDays] = useState("1");
  const action = useAction(async () => {
    const until = new Date(Date.now() + Number(days) * DAY);
    await change({ muted_until: until.toISOString() }, `The alert is muted until ${dayOf(until)}.`);
    onClose();
  });
  return html`<${FormDialog} title="Mute the alert" label="Mute" action=${action} problem=${action.error} onClose=${onClose}>
    <p><${Text}>${alert.message}<//></p>
    <${Choice} label="Mute for" value=${days} onValue=${setDays} options=${LENGTHS} />
    <p class="hint">Until then, there are no messages about this rule and job, even if the alert closes and opens again. The inbox folds the alert away.</p>
  <//>`;
}

function NormalNow({ alert, change, onClose }) {
  const accept = () => change({ normal: true }, "The alert is closed. Later runs are compared with the last one.");
  return html`<${Confirm} isHarmless title="Is this normal now?" label="It is normal now" action=${accept} onClose=${onClose}>
    <p><${Text}>${alert.message}<//></p>
    <p>The alert closes, and what the last run was like is usual from now on. Later runs are compared with it, until there are enough runs after it.</p>
    <p>Say this if the source has changed. If the scraper is broken, repair it: the alert then closes by itself.</p>
  <//>`;
}
