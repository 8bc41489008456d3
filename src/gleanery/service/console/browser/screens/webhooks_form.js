// The dialogs that create and change a webhook, and show its secret once.

import { html, useState } from "../vendor/preact.js";
import { jsonOf, path, send } from "../api.js";
import { fullTime } from "../format.js";
import { useAction } from "../load.js";
import { Checkboxes, LinesField, SelectField, TextField, linesOf } from "../ui/controls.js";
import { ShownOnce } from "../ui/copy.js";
import { FormDialog } from "../ui/dialog.js";

const MEMBERS = ["url", "events", "groups", "format", "description", "headers"];

export const FORMATS = { standard: "JSON", slack: "Slack", discord: "Discord", teams: "Microsoft Teams", email: "E-mail" };

/** The events that the service sends, by name. */
export const EVENTS = {
  "outputs.changed": "A group has changed: read its change feed.",
  "run.finished": "A run has ended. A complete one was compared.",
  "alert.opened": "A run breaks a rule of the monitors, or a job is overdue.",
  "alert.closed": "What an alert was about is over.",
  "review.created": "Somebody has reviewed a job.",
  "delivery.failed": "All attempts to deliver an event have failed.",
  "webhook.disabled": "The service has disabled another webhook.",
};

/** Returns the headers of lines such as "Name: value". One without a value has null: the stored value stays. */
function headersOf(text) {
  const pairs = linesOf(text)?.map((line) => line.split(/:(.*)/s, 2).map((part) => part.trim()));
  return pairs ? Object.fromEntries(pairs.map(([name, value]) => [name, value || null])) : null;
}

/** webhook: the one to change; without it, the dialog creates one. onDone gets what the service answers. */
export function WebhookForm({ webhook, onClose, onDone }) {
  const [form, setForm] = useState(() => ({ url: "", events: [], format: "standard", description: "", ...webhook, groups: (webhook?.groups ?? []).join("\n"), headers: Object.keys(webhook?.headers ?? {}).join("\n") }));
  const action = useAction(async () => {
    const body = { url: form.url.trim(), events: form.events, groups: linesOf(form.groups), format: form.format, description: form.description.trim(), headers: headersOf(form.headers) };
    const answer = webhook ? await send("PUT", path`v1/webhooks/${webhook.id}`, { body }) : await send("POST", "v1/webhooks", { body });
    onDone(await jsonOf(answer));
    onClose();
  });
  const { error } = action;
  const member = (name) => ({ value: form[name], onValue: (value) => setForm((before) => ({ ...before, [name]: value })), error: error?.of?.(name) });
  const events = member("events");
  const others = (webhook?.events ?? []).filter((event) => !EVENTS[event]).map((event) => [event, event === "test" ? "Sent on request." : "Not sent yet."]);
  const [title, label] = webhook ? ["Change the webhook", "Save"] : ["Create a webhook", "Create webhook"];
  const problem = !MEMBERS.some((name) => error?.of?.(name)) && error;
  return html`<${FormDialog} ...${{ title, label, action, problem, onClose }}>
    <${TextField} label="URL" hint=${form.format === "email" ? "The addresses, separated by commas." : "With https. A chat gives you the URL of an incoming webhook."} inputmode="url" autofocus required placeholder=${form.format === "email" ? "mailto:anna@example.com" : "https://"} ...${member("url")} />
    <${SelectField} label="Format" hint="JSON for programs. The others are short messages for people." options=${Object.entries(FORMATS)} ...${member("format")} />
    <${Checkboxes} label="Events" options=${[...Object.entries(EVENTS), ...others]} chosen=${events.value} onChosen=${events.onValue} error=${events.error} />
    <${LinesField} label="Groups" hint="One group id per line. Empty: all groups." ...${member("groups")} />
    <${LinesField} label="Headers" hint="One per line, such as X-Api-Key: value. Values are not shown again. A name alone keeps its value." autocomplete="off" ...${member("headers")} />
    <${TextField} label="Description" hint="For people." maxlength="500" ...${member("description")} />
  <//>`;
}

/** The new secret of a webhook. */
export function Secret({ webhook, title, onClose }) {
  const expires = webhook.old_secret_expires;
  return html`<${ShownOnce} title=${title} label="New secret" secret=${webhook.secret} onClose=${onClose}>
    The receiver verifies the signatures with it.
    ${expires && ` Until ${fullTime(expires)}, each delivery has a signature with the old secret as well.`}
    ${webhook.format !== "standard" && " Chats and e-mail do not need it."}
  <//>`;
}
