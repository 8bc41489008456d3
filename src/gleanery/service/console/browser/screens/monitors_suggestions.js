// Rules that fit the past runs of a group, each with its reason and a button that adds it.

import { html, useState } from "../vendor/preact.js";
import { useAction } from "../load.js";
import { Button } from "../ui/controls.js";
import { Loaded, Problem, notify } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Text, visibleText } from "../ui/text.js";
import { KINDS } from "./alerts.js";
import { previewText } from "./monitors_form.js";
import { Sentence, changeRules } from "./monitors_rules.js";

const SHOWN = 6;

/** state: of useLoad. Nothing, if all suggested rules are there. */
export function Suggestions({ group, state, canWrite, onChanged }) {
  const [isWhole, setIsWhole] = useState(false);
  if (state.data && !state.data.length) return null;
  return html`<${Panel} flush title="Suggestions">
    <${Loaded} state=${state}>
      ${(rules) => html`<ul class="inbox-list">${(isWhole ? rules : rules.slice(0, SHOWN)).map((rule) => html`<${Suggestion} key=${rule.kind + (rule.path ?? "")} ...${{ group, rule, canWrite, onChanged }} />`)}</ul>
        ${!isWhole && rules.length > SHOWN && html`<div class="more-pages"><${Button} onClick=${() => setIsWhole(true)}>Show all ${rules.length}<//></div>`}`}
    <//>
  <//>`;
}

function Suggestion({ group, rule, canWrite, onChanged }) {
  const { reason, preview, ...wanted } = rule;
  const add = useAction(async () => {
    await changeRules(group, wanted, wanted);
    notify("The rule is added.");
    onChanged();
  });
  const label = `Add: ${KINDS[rule.kind]}${rule.path === null ? "" : `, ${visibleText(rule.path)}`}`;
  return html`<li class="monitors-suggestion">
    <div>
      <strong><${Sentence} rule=${rule} /></strong>
      <p class="hint"><${Text}>${reason}<//> ${previewText(preview)}</p>
      <${Problem} error=${add.error} />
    </div>
    ${canWrite && html`<${Button} small icon="plus" isBusy=${add.isBusy} aria-label=${label} onClick=${() => add.run()}>Add<//>`}
  </li>`;
}
