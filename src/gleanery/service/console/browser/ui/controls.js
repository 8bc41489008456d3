// Buttons, badges, form fields and other small parts of all screens.

import { html, useId } from "../vendor/preact.js";
import { Icon } from "./icons.js";
import { Text, visibleText } from "./text.js";

/** kind: "primary", "danger", "quiet" or nothing. Other properties go to the button or link. */
export function Button({ kind, icon, isBusy, small, children, class: extra, ...rest }) {
  const name = ["button", kind, small && "small", !children && "square", extra].filter(Boolean).join(" ");
  const content = html`${icon && html`<${Icon} name=${icon} />`}${children}`;
  if (rest.href) return html`<a class=${name} ...${rest}>${content}</a>`;
  return html`<button
    type="button"
    ...${rest}
    class=${name}
    disabled=${rest.disabled}
    aria-busy=${isBusy ? "true" : undefined}
    aria-disabled=${isBusy ? "true" : undefined}
  >${isBusy ? html`<span class="spinner" aria-hidden="true"></span>` : null}${content}</button>`;
}

/** tone: "good", "warn", "bad", "info" or nothing. */
export function Badge({ tone, children, ...rest }) {
  return html`<span class=${`badge ${tone ?? ""}`} ...${rest}>${children}</span>`;
}

/** Short texts of strangers, each as a badge. */
export function Badges({ texts, label }) {
  return html`<ul class="badges" aria-label=${label}>${texts.map((text) => html`<li key=${text}><${Badge}><${Text}>${text}<//><//></li>`)}</ul>`;
}

const STATUS = {
  approved: ["good", "Approved"],
  changes_requested: ["warn", "Changes requested"],
  rejected: ["bad", "Rejected"],
  in_review: ["info", "In review"],
  pending: [undefined, "Pending"],
};

/** The status of a review; null means that there is none. */
export function StatusBadge({ status }) {
  const [tone, text] = STATUS[status] ?? [undefined, "Not reviewed"];
  return html`<${Badge} tone=${tone}>${text}<//>`;
}

/** A labelled control. children is a function that gets the id and the attributes of the control. */
export function Field({ label, hint, error, children, class: extra }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const attributes = { id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined };
  return html`<div class=${`field ${extra ?? ""}`}>
    <label for=${id}>${label}</label>
    ${children(attributes)}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${error && html`<p class="problem" id=${`${id}-error`}><${Text}>${error}<//></p>`}
  </div>`;
}

export function TextField({ label, hint, error, value, onValue, class: extra, ...rest }) {
  return html`<${Field} ...${{ label, hint, error, class: extra }}>
    ${(attributes) => html`<input
      type="text"
      autocomplete="off"
      spellcheck=${false}
      ...${attributes}
      ...${rest}
      value=${value}
      onInput=${(event) => onValue?.(event.target.value)}
    />`}
  <//>`;
}

/** A text with an element of a list in each line. */
export function LinesField({ label, hint, error, value, onValue, ...rest }) {
  return html`<${Field} ...${{ label, hint, error }}>
    ${(attributes) => html`<textarea rows="3" spellcheck=${false} ...${attributes} ...${rest} value=${value} onInput=${(event) => onValue(event.target.value)}></textarea>`}
  <//>`;
}

/** Returns the elements of the text; null if there are none. */
export function linesOf(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.length ? lines : null;
}

/** options: [[value, text], …] */
export function SelectField({ label, hint, error, value, onValue, options, class: extra, ...rest }) {
  return html`<${Field} ...${{ label, hint, error, class: extra }}>
    ${(attributes) => html`<select ...${attributes} ...${rest} value=${value} onChange=${(event) => onValue(event.target.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key}>${visibleText(text)}</option>`)}
    </select>`}
  <//>`;
}

export function Checkbox({ label, checked, onValue, ...rest }) {
  return html`<label class="checkbox">
    <input type="checkbox" ...${rest} checked=${checked} onChange=${(event) => onValue(event.target.checked)} />
    <span>${label}</span>
  </label>`;
}

/** Several checkboxes; options: [[value, content of its line, isOff], …]. chosen: the values that are checked. */
export function Checkboxes({ label, error, options, chosen, onChosen }) {
  const toggle = (value, isOn) => onChosen(isOn ? [...chosen, value] : chosen.filter((one) => one !== value));
  const id = useId();
  return html`<fieldset class="checkboxes" aria-describedby=${error && id}>
    <legend>${label}</legend>
    ${options.map(
      ([value, text, isOff]) => html`<${Checkbox}
        key=${value}
        checked=${chosen.includes(value)}
        disabled=${isOff}
        onValue=${(isOn) => toggle(value, isOn)}
        label=${html`<code>${value}</code> <span class="muted">${text}</span>`}
      />`,
    )}
    ${error && html`<p class="problem" id=${id}><${Text}>${error}<//></p>`}
  </fieldset>`;
}

/** A key of the keyboard, as a label. */
export function Key({ children }) {
  return html`<kbd>${children}</kbd>`;
}

/** Tabs as links; tabs: [{ label, href, isCurrent }]. */
export function Tabs({ label, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(
      (tab) => html`<a key=${tab.label} href=${tab.href} aria-current=${tab.isCurrent ? "page" : undefined}><${Text}>${tab.label}<//></a>`,
    )}
  </nav>`;
}

/** A list of choices of which one is pressed; options: [[value, text, isDisabled], …]. */
export function Choice({ label, value, onValue, options }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(
      ([key, text, isOff]) => html`<button key=${key} type="button" disabled=${isOff} aria-pressed=${key === value} onClick=${() => onValue(key)}>${text}</button>`,
    )}
  </div>`;
}
