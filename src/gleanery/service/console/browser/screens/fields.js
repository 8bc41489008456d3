// The fields of a group or job: how often they are filled, their kinds and ranges, and what drifts.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { number, percent, plural } from "../format.js";
import { useLoad } from "../load.js";
import { href, pushQuery } from "../router.js";
import { SelectField } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Share, Sparkline } from "../ui/charts.js";
import { Panel } from "../ui/page.js";
import { Table } from "../ui/records.js";
import { Text } from "../ui/text.js";
import { Schema } from "./fields_schema.js";
import { readGroup } from "./group_settings.js";
import { GroupPage } from "./group_page.js";

const MAX_JOBS = 500;
const NONE = html`<span class="absent">–</span>`;

export function Fields({ group, query, session }) {
  const job = query.job_id;
  const state = useLoad(
    async (signal) => {
      const read = get(path`v1/groups/${group}/fields`, { job_id: job }, signal);
      const [found, settings] = await Promise.all([read, readGroup(group, MAX_JOBS, signal)]);
      return { found, settings, of: job };
    },
    [group, job],
  );
  return html`<${GroupPage} group=${group} name=${state.data?.settings.display_name} current="Fields" actions=${state.data && html`<${JobChoice} jobs=${state.data.settings.jobs} job=${job} />`}>
    <${Loaded} state=${state}>
      ${({ found, settings, of }) =>
        found.fields.length
          ? html`<${Drift} drift=${found.drift} group=${group} />
              <${FieldTable} found=${found} />
              <${Schema} ...${{ group, job: of, found, settings, session }} onChanged=${state.reload} />`
          : html`<${Empty} icon="fields" title="No fields yet">The service counts the fields of each output that a scraper stores.<//>`}
    <//>
  <//>`;
}

function JobChoice({ jobs, job }) {
  const names = jobs.map((one) => one.job_id);
  if (job && !names.includes(job)) names.unshift(job);
  const options = [["", "All jobs"], ...names.map((name) => [name, name])];
  return html`<${SelectField} label="Job" class="fields-job" value=${job ?? ""} options=${options} onValue=${(name) => pushQuery({ job_id: name })} />`;
}

function Drift({ drift, group }) {
  if (!drift.length) return null;
  return html`<${Panel} class="fields-drift" title=${html`<${Icon} name="alert" />${plural(drift.length, "field")} changed in the newest run`}>
    <ul>
      ${drift.map(
        (one) => html`<li key=${`${one.job_id} ${one.path}`}>
          <strong><${Text}>${one.path}<//></strong>: filled in ${percent(one.now)}, median of earlier runs ${percent(one.before)}
          ${" "}<a href=${href(["groups", group, "fields"], { job_id: one.job_id })}><${Text}>${one.job_id}<//></a>
        </li>`,
      )}
    </ul>
  <//>`;
}

function FieldTable({ found }) {
  const runs = found.runs.toReversed();
  const note = `${plural(found.fields.length, "field")} of ${plural(found.counted_outputs, "output")}`;
  const isPartial = found.counted_outputs < found.outputs;
  const columns = [
    ["Field", (field) => html`<${Text}>${field.path}<//>`],
    ["Filled", (field) => html`<${Share} part=${field.filled} whole=${found.counted_outputs} noun="filled" tone=${toneOf(field.fill_rate)} />`],
    ["Kinds", (field) => html`<span>${kindsOf(field, found.counted_outputs)}</span>`],
    ["Range", ({ range }) => (range ? html`<span>${span(short(range.min), short(range.max))}</span>` : NONE)],
    ["Length", ({ length }) => (length ? html`<span>${lengthOf(length)}</span>` : NONE)],
    runs.length > 1 && [`Last ${runs.length} runs`, (field) => html`<${Rates} path=${field.path} runs=${runs} />`],
  ];
  return html`<${Panel} flush title="Fields" actions=${html`<span class="muted">${note}</span>`}>
    ${isPartial && html`<p class="fields-note hint">The fields of ${plural(found.outputs - found.counted_outputs, "output")} are not counted: they are older than the statistics, or very different from each other.</p>`}
    <${Table} class="fields-table" columns=${columns} rows=${found.fields} id="path" />
  <//>`;
}

const toneOf = (share) => (share >= 0.95 ? undefined : share >= 0.5 ? "warn" : "bad");

function kindsOf(field, counted) {
  const kinds = Object.entries(field.kinds).sort(([, one], [, other]) => other - one);
  const total = Math.max(counted, 1);
  return kinds.map(([kind, count]) => kind.replace("_", " ") + (kinds.length > 1 ? ` ${percent(count / total)}` : "")).join(", ");
}

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const short = (value) => digits.format(value);
const span = (from, to) => (from === to ? from : `${from} – ${to}`);

function lengthOf(length) {
  const all = span(number(length.min), number(length.max));
  return length.min === length.max ? all : html`${all}${" "}<span class="muted">typically ${number(length.median)}</span>`;
}

function Rates({ path: name, runs }) {
  const rates = runs.map((run) => run.fields.find((field) => field.path === name)?.fill_rate ?? 0);
  const label = `Filled in the last ${rates.length} runs, oldest first: ${rates.map(percent).join(", ")}`;
  return html`<${Sparkline} values=${rates} label=${label} max=${1} />`;
}
