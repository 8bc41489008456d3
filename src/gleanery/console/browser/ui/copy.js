// A button that copies a text to the clipboard.

import { html } from "../vendor/preact.js";
import { Button } from "./controls.js";
import { notify } from "./feedback.js";

/** text: what is copied; done: what the notice says. */
export function CopyButton({ text, done = "Copied.", label = "Copy", ...rest }) {
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => notify(done),
      () => notify("The browser did not allow copying. Select the text and copy it yourself.", { tone: "bad" }),
    );
  return html`<${Button} small icon="copy" ...${rest} onClick=${copy}>${label}<//>`;
}
