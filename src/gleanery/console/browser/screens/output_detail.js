// One output in detail, beside the grid.

import { html } from "../vendor/preact.js";
import { Button } from "../ui/controls.js";

export function OutputDetail({ outputId, onClose }) {
  return html`<aside class="output-detail panel" aria-label="Output">
    <header><h2>Output</h2><${Button} kind="quiet" icon="close" aria-label="Close" onClick=${onClose} /></header>
    <code>${outputId}</code>
  </aside>`;
}
