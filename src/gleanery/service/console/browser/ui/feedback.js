// Messages: errors, empty lists, loading, and short notices.

import { html, useEffect, useState } from "../vendor/preact.js";
import { Button } from "./controls.js";
import { Icon } from "./icons.js";
import { Text } from "./text.js";

/** The message of an error, with a button that tries again. */
export function Problem({ error, onRetry }) {
  if (!error) return null;
  return html`<div class="problem-box" role="alert">
    <${Icon} name="alert" />
    <p><${Text}>${error.message}<//></p>
    ${onRetry && html`<${Button} small onClick=${onRetry}>Try again<//>`}
  </div>`;
}

/** What a screen shows when there is nothing, with advice. */
export function Empty({ icon = "inbox", title, children }) {
  return html`<div class="empty">
    <span class="empty-icon"><${Icon} name=${icon} /></span>
    <h2>${title}</h2>
    ${children && html`<div>${children}</div>`}
  </div>`;
}

export function Loading({ label = "Loading" }) {
  return html`<div class="loading" role="status"><span class="spinner"></span><span>${label} …</span></div>`;
}

/** What a screen shows if the token lacks a scope. */
export function NoScope({ scope, what = "show this" }) {
  return html`<div class="panel"><${Empty} icon="access" title=${`Your token cannot ${what}`}>It lacks the scope <code>${scope}</code>. Ask your operator for a token that has it.<//></div>`;
}

/** Shows loading, the error or the data of useLoad. children is a function of the data. */
export function Loaded({ state, children }) {
  if (state.data !== undefined) {
    return html`${state.error && html`<${Problem} error=${state.error} onRetry=${state.reload} />`}${children(state.data)}`;
  }
  const scope = state.error?.status === 403 && /the scope ([\w:]+)/.exec(state.error.message)?.[1];
  if (scope) return html`<${NoScope} scope=${scope} />`;
  if (state.error?.status === 404) return html`<${Empty} icon="search" title="This page does not exist">It was deleted, or the address is wrong.<//>`;
  if (state.error) return html`<${Problem} error=${state.error} onRetry=${state.reload} />`;
  return html`<${Loading} />`;
}

const notices = { list: [], listeners: new Set(), next: 1 };

function update(list) {
  notices.list = list;
  for (const listener of notices.listeners) listener(list);
}

/** Shows a short notice for some seconds. action: { label, run }. */
export function notify(text, { tone, action, seconds = 6 } = {}) {
  const id = notices.next++;
  const close = () => update(notices.list.filter((one) => one.id !== id));
  update([...notices.list, { id, text, tone, action, close }].slice(-3));
  setTimeout(close, seconds * 1000);
  return close;
}

export function Notices() {
  const [list, setList] = useState(notices.list);
  useEffect(() => {
    notices.listeners.add(setList);
    return () => notices.listeners.delete(setList);
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">
    ${list.map(
      (one) => html`<div key=${one.id} class=${`notice ${one.tone ?? ""}`}>
        <span><${Text}>${one.text}<//></span>
        ${one.action &&
        html`<${Button}
          small
          kind="quiet"
          onClick=${() => {
            one.close();
            one.action.run();
          }}
        >${one.action.label}<//>`}
        <${Button} small kind="quiet" icon="close" aria-label="Dismiss" onClick=${one.close} />
      </div>`,
    )}
  </div>`;
}
