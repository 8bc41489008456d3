// The rules of a group as sentences, and what changes them.

import { html, useState } from "../vendor/preact.js";
import { get, jsonOf, path, send } from "../api.js";
import { number, percent, plural } from "../format.js";
import { useAction } from "../load.js";
import { Badge, Button } from "../ui/controls.js";
import { Confirm } from "../ui/dialog.js";
import { Empty, Problem, notify } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text, visibleText } from "../ui/text.js";
import { KINDS } from "./alerts.js";
import { RuleForm } from "./monitors_form.js";

const of = ({ path: name }, noun) => (name === null ? noun : html`<code><${Text}>${name}<//></code>`);

const SENTENCES = {
  no_run: ({ threshold, hours }) => (hours === null ? `No run for ${number(threshold)} times the usual interval` : `No run for ${plural(hours, "hour")}`),
  failed_run: ({ threshold }) => (threshold < 2 ? "A run has failed, or was abandoned" : `${plural(threshold, "run")} in a row have failed, or were abandoned`),
  few_outputs: ({ threshold, minimum }) =>
    [threshold > 0 && `at most ${percent(threshold)} of the usual outputs`, minimum !== null && `fewer than ${plural(minimum, "output")}`].filter(Boolean).join(", or ").replace(/^/, "A run has sent "),
  fill_rate: (rule) => html`The fill rate of ${of(rule, "a field")} has dropped by ${number(100 * rule.threshold)} percentage points`,
  kind_change: (rule) => html`${percent(rule.threshold)} of the values of ${of(rule, "a field")} have another kind than usual`,
  rejected: ({ threshold }) => `${percent(threshold)} of the sent elements are not valid`,
  missing: ({ threshold }) => `${percent(threshold)} of the outputs of the job are missing in a complete run`,
  number_shift: (rule) => html`The median of ${of(rule, "a number")} is ${number(rule.threshold)} times larger or smaller than usual`,
  duplicates: ({ threshold }) => `${percent(threshold)} of the outputs have the same data as another one`,
  held_removal: () => "A removal waits for a decision",
};

export function Sentence({ rule }) {
  return html`<span>${SENTENCES[rule.kind]?.(rule) ?? rule.kind}</span>`;
}

/** What names a rule in its group. */
const keyOf = ({ kind, job_id: job, path: name }) => JSON.stringify([kind, job, name]);

/** Replaces the rule with the key of before, or adds after; without after, removes it. The others are read just before. */
export async function changeRules(group, before, after) {
  const current = await get(path`v1/monitors/${group}`);
  const rules = replaced(current, before, after);
  return jsonOf(await send("PUT", path`v1/monitors/${group}`, { body: rules }));
}

/** Returns the rules with the change. */
function replaced(rules, before, after) {
  const at = before ? rules.findIndex((one) => keyOf(one) === keyOf(before)) : -1;
  if (at < 0) return after ? [...rules, after] : rules;
  return [...rules.slice(0, at), ...(after ? [after] : []), ...rules.slice(at + 1)];
}

/** Returns what a rule would have done in the past, if it replaced the one before. */
function preview(group, rules, before, after, signal) {
  const body = replaced(rules, before, after);
  return send("POST", path`console/api/monitors/${group}/preview`, { body: { rules: body, position: body.indexOf(after) }, signal }).then(jsonOf);
}

export function Rules({ group, found, jobs, canWrite, onChanged }) {
  const [dialog, setDialog] = useState(null);
  const { rules, defaults, thresholds } = found;
  const rows = rules.map((rule) => ({ ...rule, key: keyOf(rule), rule, isDefault: defaults.some((one) => isSame(one, rule)) }));
  const order = Object.keys(KINDS);
  rows.sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind) || Number(Boolean(one.job_id)) - Number(Boolean(other.job_id)));
  const form = dialog && html`<${RuleForm}
    ...${{ thresholds, jobs, rule: dialog.rule }}
    onPreview=${(rule, signal) => preview(group, rules, dialog.rule, rule, signal)}
    onSave=${async (rule) => {
      await changeRules(group, dialog.rule, rule);
      onChanged();
    }}
    onClose=${() => setDialog(null)}
  />`;
  const remove = (rule) => async () => {
    await changeRules(group, rule, null);
    notify("The rule is removed.");
    onChanged();
  };
  return html`<${Panel} flush title="Rules" actions=${canWrite && html`<${Button} small icon="plus" onClick=${() => setDialog({ name: "form" })}>Add a rule<//>`}>
    <p class="monitors-note hint">
      An alert opens when one of these is true for a job. What is usual is the median of the last ten complete runs with the same labels, without runs that had an alert; at least four are needed.
      A rule for a job or a field replaces the same rule for all.${!canWrite && " Your token needs the scope monitors:write to change rules."}
    </p>
    ${rows.length
      ? html`<${Table} class="monitors-rules" label="Rules" id="key" rows=${rows} columns=${columnsOf({ group, canWrite, onChanged, onDialog: setDialog })} />`
      : html`<${Empty} icon="alert" title="No rules">No alert opens in this group.<//>`}
    ${dialog?.name === "form" && form}
    ${dialog?.name === "remove" && html`<${Confirm} title="Remove the rule?" label="Remove the rule" action=${remove(dialog.rule)} onClose=${() => setDialog(null)}>
      <p><${Sentence} rule=${dialog.rule} />.</p>
      <p>Its open alerts close.</p>
    <//>`}
  <//>`;
}

const isSame = (one, other) => Object.keys(one).every((name) => one[name] === other[name]);

function columnsOf({ group, canWrite, onChanged, onDialog }) {
  return [
    ["An alert opens if", (row) => html`<span class=${row.enabled ? "" : "muted"}><${Sentence} rule=${row} /></span>`],
    ["Of", (row) => (row.job_id === null ? html`<span class="muted">all jobs</span>` : html`<${Text}>${row.job_id}<//>`)],
    ["State", (row) => html`<span class="monitors-state">${row.enabled ? html`<${Badge} tone="good">On<//>` : html`<${Badge}>Off<//>`}${row.isDefault && html`<${Badge} title="A new group has this rule">Default<//>`}</span>`],
    canWrite && ["", ({ rule }) => html`<${Buttons} ...${{ group, rule, onChanged, onDialog }} />`, "buttons"],
  ];
}

function Buttons({ group, rule, onChanged, onDialog }) {
  const toggle = useAction(async () => {
    await changeRules(group, rule, { ...rule, enabled: !rule.enabled });
    notify(rule.enabled ? "The rule is off." : "The rule is on.");
    onChanged();
  });
  const scope = [rule.job_id, rule.path].filter(Boolean).map((name) => `, ${visibleText(name)}`).join("");
  const label = (verb) => `${verb}: ${KINDS[rule.kind]}${scope}`;
  const change = rule.enabled ? "Switch off" : "Switch on";
  return html`<${Button} small aria-label=${label("Edit")} onClick=${() => onDialog({ name: "form", rule })}>Edit<//>
    <${Button} small isBusy=${toggle.isBusy} aria-label=${label(change)} onClick=${() => toggle.run()}>${change}<//>
    <${Button} small icon="trash" aria-label=${label("Remove")} onClick=${() => onDialog({ name: "remove", rule })} />
    <${Problem} error=${toggle.error} />`;
}
