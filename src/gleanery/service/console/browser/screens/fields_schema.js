// The suggested schema of a group: its differences from the current one, and how to apply it.

import { html, useState } from "../vendor/preact.js";
import { plural } from "../format.js";
import { Button } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Confirm } from "../ui/dialog.js";
import { notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Panel } from "../ui/page.js";
import { Text } from "../ui/text.js";
import { changeSettings } from "./group_settings.js";

const DRIFT = html`<p class="warning">The suggestion also accepts what changed in the newest run. If that is an error of the scraper, correct it first.</p>`;
const FIRST = 12, LONGEST_RULE = 200;

export function Schema({ group, job, found, settings, session, onChanged }) {
  const [dialog, setDialog] = useState(null);
  const current = settings.schema;
  const changes = compare(current, found.schema);
  const isPoor = !found.schema.properties;
  const mayWrite = session.scopes.includes("outputs:write");
  const mayApply = mayWrite && !job && !isPoor && changes.length > 0;
  const actions = html`${current && mayWrite && html`<${Button} small kind="danger" onClick=${() => setDialog("remove")}>Remove schema<//>`}
    ${mayApply && html`<${Button} small kind="primary" onClick=${() => setDialog("apply")}>Apply the suggestion<//>`}`;
  return html`<${Panel} title="Schema" actions=${actions}>
    <p class="muted">${introduction(current, changes, isPoor)}</p>
    ${!isPoor && html`<${Changes} changes=${changes} />`}
    ${mayApply && found.drift.length > 0 && DRIFT}
    ${!isPoor && job && html`<p class="hint">A schema holds for the whole group. Choose all jobs to apply one.</p>`}
    ${!mayWrite && html`<p class="hint">Your token needs the scope outputs:write to apply a schema.</p>`}
    <div class="fields-json">
      <${Json} title="Suggested schema as JSON" schema=${found.schema} />
      ${current && html`<${Json} title="Current schema as JSON" schema=${current} />`}
    </div>
    ${dialog && html`<${ChangeSchema} ...${{ group, changes, onChanged }} drift=${found.drift} schema=${dialog === "apply" ? found.schema : null} onClose=${() => setDialog(null)} />`}
  <//>`;
}

function introduction(current, changes, isPoor) {
  if (isPoor) return "There is no suggestion, because the fields of some outputs are not known.";
  if (!current) return "This group has no schema: every output is stored, whatever its fields are. The suggestion fits all outputs that are stored now:";
  if (!changes.length) return "The schema of the group is the suggested one.";
  return `The suggestion fits all outputs that are stored now. It differs from the schema of the group in ${plural(changes.length, "rule")}:`;
}

const WORDS = new Map([["string", "text"], ["array", "list"], ["boolean", "true or false"]]);

function inWords(keyword, value) {
  return value === "1" && (keyword === "minLength" || keyword === "minItems") ? "not empty" : `${keyword} ${value}`;
}

/** Returns the rules of a schema as sentences, by the path of the field. */
function rules(schema, name = "", isRequired = false, found = new Map()) {
  if (typeof schema !== "object" || schema === null) return found.set(name, String(schema));
  const { $schema, type = "anything", properties = {}, required = [], ...rest } = schema;
  const others = Object.entries(rest).map(([keyword, value]) => inWords(keyword, JSON.stringify(value)));
  const text = [[type].flat().map((one) => WORDS.get(one) ?? one).join(" or "), isRequired && "required", ...others].filter(Boolean).join(", ");
  found.set(name, text.length > LONGEST_RULE ? `${text.slice(0, LONGEST_RULE)}…` : text);
  for (const [member, inner] of Object.entries(properties)) {
    rules(inner, name ? `${name}.${member}` : member, required.includes(member), found);
  }
  return found;
}

function compare(current, suggested) {
  const before = current ? rules(current) : new Map();
  const after = rules(suggested);
  const names = [...new Set([...after.keys(), ...before.keys()])];
  return names
    .map((name) => ({ name, before: before.get(name), after: after.get(name) }))
    .filter((one) => one.before !== one.after && (one.name || current))
    .sort((one, other) => (one.before === undefined) - (other.before === undefined)); // what is lost comes first
}

function Changes({ changes }) {
  const [isOpen, setOpen] = useState(false);
  const shown = isOpen ? changes : changes.slice(0, FIRST);
  return html`<dl class="fields-rules">
      ${shown.map(
        ({ name, before, after }) => html`<div key=${name}>
          <dt>${name ? html`<${Text}>${name}<//>` : "The whole output"}</dt>
          <dd>
            ${before !== undefined && html`<del><${Text}>${before}<//></del><${Icon} name="arrow" label="becomes" />`}
            ${after === undefined ? html`<em>no rule</em>` : html`<ins><${Text}>${after}<//></ins>`}
          </dd>
        </div>`,
      )}
    </dl>
    ${shown.length < changes.length &&
    html`<div><${Button} small kind="quiet" onClick=${() => setOpen(true)}>Show ${plural(changes.length - shown.length, "more rule")}<//></div>`}`;
}

function Json({ title, schema }) {
  const text = JSON.stringify(schema, null, 2);
  return html`<details>
    <summary>${title}</summary>
    <div><${CopyButton} text=${text} label=${title.toLowerCase()} /><pre tabindex="0" role="region" aria-label=${title}><${Text}>${text}<//></pre></div>
  </details>`;
}

function ChangeSchema({ group, schema, changes, drift, onChanged, onClose }) {
  const action = async () => {
    await changeSettings(group, { schema });
    notify(schema ? "The schema is applied." : "The schema is removed.");
    onChanged();
  };
  const [title, label] = schema ? ["Apply the suggested schema", "Apply schema"] : ["Remove the schema", "Remove schema"];
  return html`<${Confirm} ...${{ title, label, action, onClose }} isHarmless=${schema}>
    ${schema
      ? html`<p>The service refuses new outputs that do not meet the schema. The scraper gets an error that names the field. The other outputs of its batch are not stored either, unless it sends <code>on_error=skip</code>.</p>
          <p>Stored outputs stay as they are. The other settings of the group stay, too.</p>
          ${drift.length > 0 && DRIFT}
          <${Changes} changes=${changes} />`
      : html`<p>The service stores every new output, whatever its fields are. Stored outputs stay as they are.</p>`}
  <//>`;
}
