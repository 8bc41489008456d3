// The table of people who are signed in.

import { html } from "../vendor/preact.js";
import { Panel } from "../shell.js";
import { Badge, Button } from "../ui/controls.js";
import { Text, Time } from "../ui/text.js";

export function SessionTable({ sessions, session, tokens, onEnd }) {
  const names = new Map(tokens.map((token) => [token.id, token.name]));
  names.set(session.token_id, session.token_name);
  return html`<${Panel} title="Signed in" flush>
    <div class="table-box">
      <table class="cards">
        <thead>
          <tr><th>Person</th><th>Token</th><th>Signed in</th><th>Last use</th><th><span class="visually-hidden">Actions</span></th></tr>
        </thead>
        <tbody>
          ${sessions.map(
            (one) => html`<tr key=${one.id}>
              <td><span class="access-name"><${Text}>${one.person}<//> ${one.id === session.session_id && html`<${Badge} tone="info">This session<//>`}</span></td>
              <td data-label="Token"><${Text}>${names.get(one.token_id) ?? `Token ${one.token_id}`}<//></td>
              <td data-label="Signed in" class="access-time"><${Time} at=${one.created} /></td>
              <td data-label="Last use" class="access-time"><${Time} at=${one.last_used} /></td>
              <td class="access-actions"><${Button} small aria-label=${`End session of ${one.person}`} onClick=${() => onEnd(one)}>End session<//></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  <//>`;
}
