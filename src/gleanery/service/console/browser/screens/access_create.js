// The dialog that creates a token, and shows it once.

import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { dayOf } from "../format.js";
import { useAction } from "../load.js";
import { proofOf } from "../session_key.js";
import { Checkboxes, SelectField, TextField } from "../ui/controls.js";
import { ShownOnce } from "../ui/copy.js";
import { FormDialog } from "../ui/dialog.js";

const LIFETIMES = [["30", "30 days"], ["90", "90 days"], ["365", "1 year"], ["", "No expiry"]];

const needsToken = (error) => error?.details?.some((detail) => detail.type === "confirmation_required");

export function CreateToken({ session, scopes, onClose, onDone }) {
  const [created, setCreated] = useState(null);
  if (!created) return html`<${Form} ...${{ session, scopes, onClose }} onCreated=${setCreated} />`;
  const close = () => {
    onDone();
    onClose();
  };
  return html`<${ShownOnce} title="The token is created" label="New token" secret=${created.token} onClose=${close}>
    ${created.expires ? `It expires on ${dayOf(created.expires)}.` : "It does not expire."}
  <//>`;
}

function Form({ session, scopes, onClose, onCreated }) {
  const [form, setForm] = useState({ name: "", chosen: [], days: "90", token: "" });
  const [mustConfirm, setMustConfirm] = useState(!session.is_fresh);
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const action = useAction(async () => {
    if (mustConfirm) await post("console/api/confirm", proofOf(form.token));
    setMustConfirm(false);
    const body = { name: form.name, scopes: form.chosen, days: form.days ? Number(form.days) : null };
    try {
      onCreated(await post("console/api/tokens", body));
    } catch (problem) {
      if (!needsToken(problem)) throw problem;
      setMustConfirm(true);
      setTimeout(() => document.getElementsByName("proof")[0]?.focus()); // when it is shown
    }
  });
  const wrong = action.error?.of?.("token");
  return html`<${FormDialog} title="Create a token" label="Create token" action=${action} problem=${!wrong && action.error} onClose=${onClose}>
    <${TextField} label="Name" hint="For example the scraper or the client that uses it." autofocus required maxlength="100" value=${form.name} onValue=${set("name")} />
    <${Checkboxes} label="Scopes" options=${optionsOf(scopes, session.scopes)} chosen=${form.chosen} onChosen=${set("chosen")} />
    <${SelectField} label="Expires after" hint=${session.expires && `Not later than your own token, on ${dayOf(session.expires)}.`} value=${form.days} onValue=${set("days")} options=${LIFETIMES} />
    ${mustConfirm && html`<${TextField} label="Sign in again with your access token or a new login link" hint="Your last sign-in is more than 10 minutes ago. Your operator can make a link for your token." name="proof" type="password" required value=${form.token} onValue=${set("token")} error=${wrong} />`}
  <//>`;
}

function optionsOf(scopes, own) {
  return Object.entries(scopes).map(([scope, text]) => [scope, ...(own.includes(scope) ? [text] : ["your own token lacks this scope", true])]);
}
