// The settings of a group: its name, what identifies an output, how long versions are kept, and what runs do.

import { html, useState } from "../vendor/preact.js";
import { jsonOf, path, send } from "../api.js";
import { number } from "../format.js";
import { useAction, useLoad } from "../load.js";
import { href } from "../router.js";
import { Button, LinesField, TextField, linesOf } from "../ui/controls.js";
import { Loaded, Problem, notify } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Facts } from "../ui/records.js";
import { Time } from "../ui/text.js";
import { GroupPage } from "./group_page.js";

const NAMES = ["display_name", "key_fields", "schema", "retain_days", "keep_versions", "keep_days", "run_timeout_minutes", "missing"];
const NUMBERS = ["retain_days", "keep_versions", "keep_days", "run_timeout_minutes"];
const SHOWN = [...NAMES, "after_runs", "max_share"]; // members of the form, of which two are members of missing

/** Reads a group with the first of its jobs. */
export async function readGroup(group, jobs = 1, signal) {
  return jsonOf(await send("GET", path`v1/groups/${group}`, { query: { limit: jobs }, signal }), parseExact);
}

/** Changes some settings. The service replaces all of them, so the others are read just before. */
export async function changeSettings(group, changes) {
  const current = await readGroup(group);
  const settings = Object.fromEntries(NAMES.map((name) => [name, current[name]]));
  const text = JSON.stringify({ ...settings, ...changes });
  await send("PUT", path`v1/groups/${group}`, { text, type: "application/json" });
}

export function GroupSettings({ group, session }) {
  const state = useLoad((signal) => readGroup(group, 1, signal), [group]);
  return html`<${GroupPage} group=${group} name=${state.data?.display_name} current="Settings">
    <${Loaded} state=${state}>
      ${(found) => html`<div class="settings">
        <${Form} key=${JSON.stringify(NAMES.map((name) => found[name]))} ...${{ group, found, session }} onSaved=${state.reload} />
        <${About} group=${group} found=${found} />
      </div>`}
    <//>
  <//>`;
}

function toTexts(found) {
  const numbers = NUMBERS.map((name) => [name, found[name] === null ? "" : String(found[name])]);
  const { after_runs: runs, max_share: share } = found.missing;
  const missing = { after_runs: runs === null ? "" : String(runs), max_share: String(toPercent(share)) };
  return { display_name: found.display_name ?? "", key_fields: (found.key_fields ?? []).join("\n"), ...missing, ...Object.fromEntries(numbers) };
}

/** Returns a share as a percentage, without the digits that a product of two doubles adds. */
const toPercent = (share) => Number((100 * share).toPrecision(12));

/** Returns undefined for the default. Another text goes to the service, which says what is wrong. */
function toShare(text) {
  if (text === "") return undefined;
  return /^\d{1,3}(\.\d{1,6})?$/.test(text) ? Number((Number(text) / 100).toPrecision(12)) : text;
}

/** Another text goes to the service as it is, and the service says what is wrong. */
const toNumber = (text) => (text === "" ? null : /^\d{1,15}$/.test(text) ? Number(text) : text);

function toSettings(texts) {
  const numbers = NUMBERS.map((name) => [name, toNumber(texts[name].trim())]);
  const missing = { after_runs: toNumber(texts.after_runs.trim()), max_share: toShare(texts.max_share.trim()) };
  return { display_name: texts.display_name.trim() || null, key_fields: linesOf(texts.key_fields), missing, ...Object.fromEntries(numbers) };
}

function Form({ group, found, session, onSaved }) {
  const [texts, setTexts] = useState(() => toTexts(found));
  const mayWrite = session.scopes.includes("outputs:write");
  const { submit, isBusy, error } = useAction(async () => {
    await changeSettings(group, toSettings(texts));
    notify("The settings are saved.");
    onSaved();
  });
  const member = (name) => ({
    value: texts[name],
    onValue: (text) => setTexts({ ...texts, [name]: text }),
    error: error?.of?.(name),
    name,
    disabled: !mayWrite,
  });
  const isShown = error && SHOWN.some((name) => error.of?.(name));
  return html`<form class="panel" onSubmit=${submit}>
    <h2>Settings</h2>
    <${TextField} label="Display name" hint="A name for people. The group keeps its id." maxlength="200" ...${member("display_name")} />
    <${LinesField}
      label="Key fields"
      hint="One field per line. Together they identify an output, unless the scraper sends a key. Without them, the source URL does. After a change, outputs that are scraped again get a new identity."
      ...${member("key_fields")}
    />
    <${TextField} inputmode="numeric" label="Delete an output after (days)" hint="Counted from the last run that sent it. Empty: outputs are kept for ever." ...${member("retain_days")} />
    <div class="settings-pair">
      <${TextField} inputmode="numeric" label="Earlier versions of each output" hint="0 keeps none." ...${member("keep_versions")} />
      <${TextField} inputmode="numeric" label="Days that an earlier version is kept" ...${member("keep_days")} />
    </div>
    <${TextField} inputmode="numeric" label="A run is abandoned after (minutes)" hint="Without outputs, if it was started and not finished." ...${member("run_timeout_minutes")} />
    <div class="settings-pair">
      <${TextField} inputmode="numeric" label="Remove after (complete runs)" hint="In a row that do not send an output. Empty: it is never removed." ...${member("after_runs")} />
      <${TextField} inputmode="decimal" label="Ask a person above (% of the job)" hint="A larger removal waits in the inbox for a decision." ...${member("max_share")} />
    </div>
    ${error && !isShown && html`<${Problem} error=${error} />`}
    <div class="actions">
      <${Button} kind="primary" type="submit" isBusy=${isBusy} disabled=${!mayWrite}>Save<//>
      ${!mayWrite && html`<span class="hint">Your token needs the scope outputs:write to change settings.</span>`}
    </div>
  </form>`;
}

function About({ group, found }) {
  return html`<${Panel} title="About">
    <${Facts}
      rows=${[
        ["Outputs", number(found.outputs)],
        ["Last change", html`<${Time} at=${found.last_change} />`],
        ["Group number", found.id],
        ["Schema", html`<a href=${href(["groups", group, "fields"])}>${found.schema ? "Compare with the fields" : "None. Suggest one from the fields"}</a>`],
      ]}
    />
    <p class="hint">Local-storage entries name their group by this number.</p>
  <//>`;
}

const DOUBLE_DIGITS = 15; // a number with at most so many digits loses none

/** Parses a text. A number that would lose digits stays as its text, and JSON.stringify writes that again. */
function parseExact(text) {
  return JSON.parse(text, (name, value, context) => {
    if (typeof value !== "number" || !JSON.rawJSON) return value;
    const digits = context.source.replace(/e.*$/i, "").replace(/^[-0.]+|[.]/g, "");
    return digits.length <= DOUBLE_DIGITS || String(value) === context.source ? value : JSON.rawJSON(context.source);
  });
}
