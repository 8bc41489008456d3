// The dialog that creates a token, and shows it once.

import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { dayOf } from "../format.js";
import { useAction } from "../load.js";
import { proofOf } from "../session_key.js";
import { Button, Checkbox, SelectField, TextField } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Dialog } from "../ui/dialog.js";
import { Problem } from "../ui/feedback.js";

const LIFETIMES = [["30", "30 days"], ["90", "90 days"], ["365", "1 year"], ["", "No expiry"]];
const FORM = "access-form";

const needsToken = (error) => error?.details?.some((detail) => detail.type === "confirmation_required");

export function CreateToken({ session, scopes, onClose, onDone }) {
  const [created, setCreated] = useState(null);
  if (!created) return html`<${Form} ...${{ session, scopes, onClose }} onCreated=${setCreated} />`;
  const close = () => {
    onDone();
    onClose();
  };
  return html`<${Created} token=${created} onClose=${close} />`;
}

function Form({ session, scopes, onClose, onCreated }) {
  const [form, setForm] = useState({ name: "", chosen: [], days: "90", token: "" });
  const [mustConfirm, setMustConfirm] = useState(!session.is_fresh);
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const { submit, isBusy, error } = useAction(async () => {
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
  const buttons = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind="primary" type="submit" form=${FORM} isBusy=${isBusy}>Create token<//>`;
  return html`<${Dialog} title="Create a token" onClose=${onClose} actions=${buttons}>
    <form id=${FORM} onSubmit=${submit}>
      <${TextField} label="Name" hint="For example the scraper or the client that uses it." autofocus required maxlength="100" value=${form.name} onValue=${set("name")} />
      <${Scopes} scopes=${scopes} own=${session.scopes} chosen=${form.chosen} onChange=${set("chosen")} />
      <${SelectField} label="Expires after" hint=${session.expires && `Not later than your own token, on ${dayOf(session.expires)}.`} value=${form.days} onValue=${set("days")} options=${LIFETIMES} />
      ${mustConfirm && html`<${TextField} label="Sign in again with your access token or a new login link" hint="Your last sign-in is more than 10 minutes ago. Your operator can make a link for your token." name="proof" type="password" required value=${form.token} onValue=${set("token")} error=${error?.of?.("token")} />`}
    </form>
    ${!error?.of?.("token") && html`<${Problem} error=${error} />`}
  <//>`;
}

function Scopes({ scopes, own, chosen, onChange }) {
  const toggle = (scope, isOn) => onChange(isOn ? [...chosen, scope] : chosen.filter((one) => one !== scope));
  return html`<fieldset class="access-fieldset">
    <legend>Scopes</legend>
    ${Object.entries(scopes).map(
      ([scope, text]) => html`<${Checkbox}
        key=${scope}
        checked=${chosen.includes(scope)}
        disabled=${!own.includes(scope)}
        onValue=${(isOn) => toggle(scope, isOn)}
        label=${html`<code>${scope}</code> <span class="muted">${own.includes(scope) ? text : "your own token lacks this scope"}</span>`}
      />`,
    )}
  </fieldset>`;
}

/** Only a button closes this dialog, because the token cannot be shown again. */
function Created({ token, onClose }) {
  const buttons = html`<${Button} kind="primary" onClick=${onClose}>Done<//>`;
  return html`<${Dialog} title="The token is created" stays onClose=${onClose} actions=${buttons}>
    <p>Copy it now, and store it in a safe place. It cannot be shown again.</p>
    <div class="access-token">
      <${TextField} label="New token" readonly value=${token.token} onFocus=${(event) => event.target.select()} />
      <${CopyButton} text=${token.token} label="the token">Copy<//>
    </div>
    <p class="muted">${token.expires ? `It expires on ${dayOf(token.expires)}.` : "It does not expire."}</p>
  <//>`;
}
