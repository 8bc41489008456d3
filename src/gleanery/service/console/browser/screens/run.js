// The page of a run: everything about it, and the decision about a removal that is held.

import { html, useState } from "../vendor/preact.js";
import { get, path, post } from "../api.js";
import { duration, fullTime, number, percent, plural } from "../format.js";
import { useLoad } from "../load.js";
import { More, Refresh, filledPage, usePages } from "../pages.js";
import { href } from "../router.js";
import { Button } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Confirm } from "../ui/dialog.js";
import { Loaded, notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Panel } from "../ui/page.js";
import { Facts, Table } from "../ui/records.js";
import { Text, Time, shortUrl, visibleText } from "../ui/text.js";
import { Inline, plain } from "../ui/value.js";
import { Alert, FieldFacts, rights } from "./alerts.js";
import { GroupPage, useGroupName } from "./group_page.js";
import { Labels, RunBar, RunStatus, sentBy } from "./run_bar.js";

const SHOWN_COLUMNS = 2;

export function Run({ group, run: runId, session }) {
  const state = useLoad((signal) => get(path`console/api/runs/${group}/${runId}`, {}, signal), [group, runId]);
  const run = state.data?.run;
  const crumbs = [["Groups", ["groups"]], [useGroupName(group), ["groups", group]], ["Runs", ["groups", group, "runs"]]];
  const title = run ? `Run of ${run.job_id}` : "Run";
  const note = run && html`<span class="run-head"><${RunStatus} status=${run.status} /> <span>started <${Time} at=${run.start_date} /></span></span>`;
  return html`<${GroupPage} ...${{ group, title, crumbs, note }} current="Runs" actions=${html`<${Refresh} state=${state} />`}>
    <${Loaded} state=${state}>
      ${(found) => html`
        ${found.alerts.length > 0 && html`<${Alerts} ...${{ group, session, alerts: found.alerts }} onChanged=${state.reload} />`}
        ${found.run.removal === "held" && html`<${HeldRemoval} ...${{ group, found, session }} onDecided=${state.reload} />`}
        <div class="run">
          <${Outputs} group=${group} found=${found} />
          <${About} group=${group} run=${found.run} />
        </div>`}
    <//>
  <//>`;
}

/** The alerts that the run has opened, or was the last run with. */
function Alerts({ group, session, alerts, onChanged }) {
  const { canWrite } = rights(session);
  return html`<${Panel} flush title="Alerts" actions=${html`<a href=${href(["groups", group, "monitors"], { job_id: alerts[0].job_id })}>All alerts of the job</a>`}>
    <ul class="inbox-list alerts">${alerts.map((one) => html`<${Alert} key=${one.alert_id} ...${{ alert: one, canWrite, onChanged }}><${FieldFacts} alert=${one} /><//>`)}</ul>
  <//>`;
}

function Outputs({ group, found }) {
  const { run } = found;
  const of = (tab, query) => href(["groups", group, tab], { job_id: run.job_id, ...query });
  return html`<${Panel} title="Outputs">
    <${RunBar} run=${run} />
    <${Facts}
      rows=${[
        ["Sent", number(sentBy(run))],
        run.usual !== null && ["Usually", html`about ${number(run.usual)}`],
        ["New", number(run.counts.created)],
        ["Updated", number(run.counts.updated)],
        ["Unchanged", number(run.counts.unchanged)],
        ["Rejected", number(run.counts.rejected)],
        run.comparison && ["Missing", html`<${Missing} found=${found} />`],
        run.removal && ["Removal", html`<${Removal} found=${found} />`],
        ["Job now", plural(found.outputs, "output")],
      ]}
    />
    <p class="run-links">
      ${run.counts.missing > 0 && html`<a href=${of("outputs", { missing: "true" })}>Outputs that are missing now</a>`}
      <a href=${of("runs")}>Runs of the job</a>
      <a href=${of("fields")}>Fields of the job</a>
    </p>
  <//>`;
}

function Missing({ found: { run, compared } }) {
  if (run.comparison === "pending") return html`${number(run.counts.missing)} so far: the run is being compared with the ${plural(compared, "output")} of its job`;
  return html`${number(run.counts.missing)} of ${plural(compared, "output")} that the job had`;
}

const REMOVALS = {
  pending: (run) => `In progress: ${number(run.counts.removed)} of ${plural(run.removable, "output")} removed`,
  held: (run) => `Held: ${plural(run.removable, "output")} wait for a decision`,
  done: (run) => `${plural(run.counts.removed, "output")} removed`,
  kept: (run) => `${plural(run.removable, "output")} kept by a decision`,
  replaced: () => "Replaced by a later complete run",
};

const Removal = ({ found: { run } }) => html`<span>${REMOVALS[run.removal]?.(run) ?? run.removal}</span>`;

function About({ group, run }) {
  const end = run.finish_date;
  return html`<${Panel} title="About">
    <${Facts}
      rows=${[
        ["Job", html`<a href=${href(["groups", group, "outputs"], { job_id: run.job_id })}><${Text}>${run.job_id}<//></a>`],
        ["Started", html`<${Time} at=${run.start_date} show=${fullTime} />`],
        ["Ended", end ? html`<${Time} at=${end} show=${fullTime} />` : html`<span class="muted">not yet</span>`],
        end && ["Duration", duration(run.start_date, end)],
        run.message && ["Message", html`<${Text}>${run.message}<//>`],
        Object.keys(run.labels).length > 0 && ["Labels", html`<${Labels} labels=${run.labels} />`],
        ["Begun by", run.is_implicit ? "outputs that named no run" : "the scraper"],
        ["Run id", html`<span class="run-id"><code>${run.run_id}</code><${CopyButton} text=${run.run_id} label="the run id" /></span>`],
      ]}
    />
  <//>`;
}

// --- a removal that is held ---

function HeldRemoval({ group, found, session, onDecided }) {
  const [decision, setDecision] = useState(null);
  const { run, compared, after_runs: afterRuns } = found;
  const mayDecide = session.scopes.includes("reviews:write");
  const share = percent(Math.round((100 * run.removable) / Math.max(compared, 1)) / 100);
  return html`<${Panel} flush class="run-held" title=${html`<${Icon} name="alert" />${plural(run.removable, "output")} of the job to remove`}>
    <div class="run-question">
      <p>
        ${afterRuns > 1 ? `The last ${afterRuns} complete runs` : "The last complete run"} of the job did not send these outputs.
        They are ${share} of the job, so nothing is removed until a person decides.
        Remove them if the source no longer has them. Keep them if the scraper did not find them.
      </p>
      <div class="actions">
        <${Button} kind="danger" icon="trash" disabled=${!mayDecide} onClick=${() => setDecision("remove")}>Remove<//>
        <${Button} icon="check" disabled=${!mayDecide} onClick=${() => setDecision("keep")}>Keep<//>
        ${!mayDecide && html`<span class="hint">Your token needs the scope reviews:write to decide.</span>`}
      </div>
    </div>
    <${Removable} group=${group} run=${run} />
    ${decision && html`<${Decision} ...${{ group, run, decision, onDecided }} onClose=${() => setDecision(null)} />`}
  <//>`;
}

function Decision({ group, run, decision, onClose, onDecided }) {
  const count = plural(run.removable, "output");
  const decide = async () => {
    const { removal, counts } = await post(path`v1/runs/${group}/${run.run_id}/removal`, { decision });
    onDecided();
    return removal === "done" ? `Removed: ${plural(counts.removed, "output")}.` : "The removal has begun.";
  };
  if (decision === "keep") {
    const keep = async () => {
      await decide();
      notify(`Kept: ${count}.`);
    };
    return html`<${Confirm} isHarmless title=${`Keep ${count}?`} label=${`Keep ${count}`} action=${keep} onClose=${onClose}>
      <p>Nothing is deleted. The outputs are removed only after as many further complete runs without them as the settings of the group say.</p>
    <//>`;
  }
  const remove = async () => notify(await decide());
  return html`<${Confirm} title=${`Remove ${count}?`} label=${`Remove ${count}`} action=${remove} onClose=${onClose}>
    <p>This deletes ${count} of the job <strong><${Text}>${run.job_id}<//></strong>, in the approved view as well. Outputs that were sent again since this run stay. If a scraper sends a deleted output again, it is created again, with its history.</p>
  <//>`;
}

/** The outputs that the removal is about. */
function Removable({ group, run }) {
  const pages = usePages((after, signal) => loadRemovable(group, run.run_id, after, signal), [run]); // again with each load of the run
  const columns = pages.first?.columns.slice(0, SHOWN_COLUMNS) ?? [];
  return html`<${Loaded} state=${pages}>
    ${(outputs) => html`<${Table} class="run-removable" label="Outputs to remove" rows=${outputs} id="output_id" columns=${columnsOf(group, columns)} /><${More} pages=${pages} />`}
  <//>`;
}

function loadRemovable(group, runId, next, signal) {
  return filledPage(async (after) => {
    const page = await get(path`console/api/runs/${group}/${runId}/removal`, { after }, signal);
    return { items: page.outputs.map((one) => withValues(one, page.columns)), next: page.next, columns: page.columns };
  }, next);
}

/** Another page may have other columns, so the values of an output are by path. */
function withValues(output, columns) {
  return { ...output, values: new Map(columns.map(({ path: name }, at) => [name, output.cells[at]])) };
}

function columnsOf(group, columns) {
  return [
    ["Output", (output) => html`<a href=${href(["groups", group, "outputs", output.output_id])}><${Text}>${shortUrl(plain(output.source_url))}<//></a>`],
    ...columns.map(({ path: name }) => [visibleText(name), (output) => html`<${Inline} node=${output.values.get(name)} />`]),
    ["Last sent", (output) => html`<${Time} at=${output.last_sent_at} />`, "time"],
  ];
}
