// All groups of the organization, with their size and their last change.

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { number } from "../format.js";
import { useLoad } from "../load.js";
import { href } from "../router.js";
import { Page, Panel } from "../shell.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Text, Time } from "../ui/text.js";

export function Groups() {
  const state = useLoad((signal) => get("v1/groups", {}, signal), []);
  return html`<${Page} title="Groups" note="A group holds the outputs of related jobs.">
    <${Loaded} state=${state}>
      ${(groups) =>
        groups.length
          ? html`<${Panel} flush><${Table} groups=${groups} /><//>`
          : html`<${Empty} icon="groups" title="No groups yet">A scraper creates a group when it stores its first outputs.<//>`}
    <//>
  <//>`;
}

function Table({ groups }) {
  return html`<div class="table-box">
    <table class="cards">
      <thead>
        <tr><th>Group</th><th class="number">Outputs</th><th class="number">Jobs</th><th>Last change</th></tr>
      </thead>
      <tbody>
        ${groups.map(
          (group) => html`<tr key=${group.group_id}>
            <td><a href=${href(["groups", group.group_id])}><${Text}>${group.group_id}<//></a></td>
            <td class="number" data-label="Outputs">${number(group.outputs)}</td>
            <td class="number" data-label="Jobs">${number(group.jobs.length)}</td>
            <td data-label="Last change"><${Time} at=${group.last_change} /></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
