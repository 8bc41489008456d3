// Dialogs: a modal one, one with a form, and a question before an action that cannot be undone.

import { html, useId, useLayoutEffect, useRef } from "../vendor/preact.js";
import { useAction } from "../load.js";
import { Button } from "./controls.js";
import { Problem } from "./feedback.js";

/** A modal dialog, shown as long as it is rendered. stays: only its buttons close it. */
export function Dialog({ title, onClose, children, actions, wide, stays }) {
  const ref = useRef();
  const id = useId();
  // Before the next key, which is for the dialog and not for the screen below it.
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const isOwn = (event) => event.target === ref.current; // a file input inside is cancelled, too
  const leave = () => stays || onClose();
  const cancel = (event) => {
    if (!isOwn(event)) return;
    event.preventDefault();
    leave();
  };
  // A browser closes the dialog itself at a second Escape, whatever the first one did.
  const closed = (event) => {
    if (!isOwn(event)) return;
    leave();
    setTimeout(() => ref.current?.isConnected && !ref.current.open && ref.current.showModal());
  };
  return html`<dialog
    ref=${ref}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id}
    closedby=${stays ? "none" : undefined}
    onCancel=${cancel}
    onClose=${closed}
    onMouseDown=${(event) => isOwn(event) && leave()}
  >
    <div class="dialog">
      <header><h2 id=${id}>${title}</h2><${Button} kind="quiet" icon="close" aria-label="Close" onClick=${onClose} /></header>
      <div class="content">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </div>
  </dialog>`;
}

/** A dialog with a form; its fields are the children. label: the text of the button that sends it. action: of useAction. problem: an error of no field. */
export function FormDialog({ title, label, action: { submit, isBusy }, problem, onClose, children }) {
  const id = useId();
  const buttons = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind="primary" type="submit" form=${id} isBusy=${isBusy}>${label}<//>`;
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${buttons}>
    <form id=${id} onSubmit=${submit}>${children}</form>
    <${Problem} error=${problem} />
  <//>`;
}

/** label: the text of the button that runs action. isHarmless: it destroys nothing. The dialog closes when the action has succeeded. */
export function Confirm({ title, label, action, isHarmless, onClose, children }) {
  const { run, isBusy, error } = useAction(async () => {
    await action();
    onClose();
  });
  const buttons = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind=${isHarmless ? "primary" : "danger"} isBusy=${isBusy} onClick=${() => run()}>${label}<//>`;
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${buttons}>
    ${children}
    <${Problem} error=${error} />
  <//>`;
}
