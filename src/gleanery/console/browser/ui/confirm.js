// A question before an action that cannot be undone.

import { html } from "../vendor/preact.js";
import { useAction } from "../load.js";
import { Button, Dialog } from "./controls.js";
import { Problem } from "./feedback.js";

/** label: the text of the button that runs action. The dialog closes when the action has succeeded. */
export function Confirm({ title, label, action, onClose, children }) {
  const { run, isBusy, error } = useAction(async () => {
    await action();
    onClose();
  });
  const buttons = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind="danger" isBusy=${isBusy} onClick=${() => run()}>${label}<//>`;
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${buttons}>
    <div>${children}</div>
    <${Problem} error=${error} />
  <//>`;
}
