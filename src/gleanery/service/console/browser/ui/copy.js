// A button that copies a text, and a dialog with a secret to copy.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Button, TextField } from "./controls.js";
import { Dialog } from "./dialog.js";
import { notify } from "./feedback.js";
import { visibleText } from "./text.js";

/**
 * text: what to copy, or a function that returns a promise of it. label: what it copies. children: the text of the button; without
 * it the button is an icon. done: a notice.
 */
export function CopyButton({ text, label, done, children, class: extra }) {
  const [isDone, setDone] = useState(false);
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
    } catch (error) {
      notify(`Nothing was copied. ${error.message}`, { tone: "bad" });
      return;
    }
    if (done) notify(done);
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 1500);
  };
  const name = isDone ? "Copied" : `Copy ${visibleText(label)}`;
  const attributes = children ? {} : { kind: "quiet", "aria-label": name, title: name };
  return html`<${Button} small icon=${isDone ? "check" : "copy"} class=${extra} ...${attributes} onClick=${copy}>${children && (isDone ? "Copied" : children)}<//>`;
}

/** A new secret. Only a button closes the dialog, because the secret cannot be shown again. */
export function ShownOnce({ title, label, secret, onClose, children }) {
  return html`<${Dialog} title=${title} stays onClose=${onClose} actions=${html`<${Button} kind="primary" onClick=${onClose}>Done<//>`}>
    <p>Copy it now, and store it in a safe place. It cannot be shown again.</p>
    <div class="shown-once">
      <${TextField} label=${label} readonly value=${secret} onFocus=${(event) => event.target.select()} />
      <${CopyButton} text=${secret} label="the secret">Copy<//>
    </div>
    <p class="muted">${children}</p>
  <//>`;
}
