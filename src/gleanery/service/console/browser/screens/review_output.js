// One output of a sample: its fields beside the last approved ones, and the form for notes.

import { html, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { SERVICE } from "../api.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { Badge, Button, Key } from "../ui/controls.js";
import { Icon } from "../ui/icons.js";
import { Problem } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { SourceLink, Text, Time, safeUrl, visibleText } from "../ui/text.js";
import { Tree, fieldName } from "../ui/value.js";
import { loader } from "./output_detail.js";
import { MAX_NOTE } from "./review_decisions.js";

const NUMBERED = 9;
const REASONS = {
  random: "Random",
  rare_shape: "Unusual set of fields",
  outlier: "Extreme value",
};
const APPROVALS = {
  current: ["good", "This value is approved"],
  older: ["warn", "Changed since its approval"],
  none: [undefined, "Not approved"],
};

/** Returns why the changed fields cannot be shown alone; undefined if they can. */
export function whyNoDiff({ approval, rows }) {
  if (approval === "none") return "No version of this output is approved";
  return rows.some((row) => row.is_changed) ? undefined : "No field differs from the approved version";
}

/**
 * Returns the rows to show. The first nine fields always have a row, so that their keys stay the same.
 * more: rows of fields that the sample has left out.
 */
export function visibleRows(sample, output, onlyChanged, more = []) {
  const rows = new Map(output.rows.map((row) => [row.at, row]));
  const places = new Set([...rows.keys(), ...sample.fields.slice(0, NUMBERED).keys()]);
  const first = [...places].sort((one, other) => one - other).map((at) => ({ after: null, before: null, ...rows.get(at), path: sample.fields[at] }));
  const known = new Set(first.map((row) => row.path));
  const all = [...first, ...more.filter((row) => !known.has(row.path))];
  return onlyChanged && !whyNoDiff(output) ? all.filter((row) => row.is_changed) : all;
}

/** The output that is decided now. edit: { path } while a note is written. later: what was stored since the sample. */
export function Output({ group, sample, output, later, rows, decision, edit, draft, actions, onCancel, onlyChanged, onReload, ...more }) {
  const [tone, approval] = APPROVALS[output.approval];
  return html`<${Panel} flush>
    <header class="review-about">
      <div>
        <div class="review-badges">
          ${REASONS[output.reason] && html`<${Badge} tone="info">${REASONS[output.reason]}<//>`}
          <${Badge} tone=${tone}>${approval}<//>
          <${Verdict} decision=${decision} isOld=${decision && decision.version !== output.version} />
          ${output.stored > sample.cursor && html`<${Badge} tone="warn">Newer than the sample: not covered<//>`}
          ${later.deleted.includes(output.output_id) && html`<${Badge} tone="bad">Deleted<//>`}
          ${later.later[output.output_id] > output.stored && html`<${Badge} tone="warn">Has a newer value<//><${Button} small kind="quiet" onClick=${onReload}>Show it<//>`}
        </div>
        ${output.detail && html`<p><${Text}>${output.detail}<//></p>`}
        <p><${SourceLink} url=${output.source_url} /></p>
      </div>
      <div class="review-scraped">
        <span class="muted">scraped <${Time} at=${output.last_scraped_date} /></span>
        <a href=${href(["groups", group, "outputs", output.output_id])}>Details</a>
      </div>
    </header>
    ${edit && html`<${NoteForm} key=${edit.path} ...${{ path: edit.path, decision, draft, onCancel, onKeep: actions.keep }} />`}
    <${Fields} ...${{ group, output, rows, decision, onFlag: actions.toggleFlag }} />
    <${Rest} ...${{ output, rows, onlyChanged, ...more }} />
    ${notesOf(decision).map((note) => html`<p class="review-comment"><${Icon} name="comment" label="Note" /><${Text}>${note}<//></p>`)}
    ${output.files.length > 0 && html`<${Files} files=${output.files} />`}
  <//>`;
}

/** Returns the notes on the output as a whole. */
const notesOf = (decision) => [decision?.flags.find((flag) => flag.path === null)?.note, decision?.comment].filter(Boolean);

/** isOld: the decision is about an earlier value of the output. */
function Verdict({ decision, isOld }) {
  const about = isOld && ": the value before";
  if (decision?.flags.length) {
    const whole = decision.flags.some((flag) => flag.path === null);
    return html`<${Badge} tone="bad"><${Icon} name="flag" />${whole ? "Flagged" : plural(decision.flags.length, "flagged field")}${about}<//>`;
  }
  if (decision?.isOk) return html`<${Badge} tone="good"><${Icon} name="check" />OK${about}<//>`;
  return html`<${Badge}>Not decided<//>`;
}

function Fields({ group, output, rows, decision, onFlag }) {
  const compares = output.before !== null;
  const flags = new Map(decision?.flags.map((flag) => [flag.path, flag]));
  return html`<table class="review-fields">
    <thead>
      <tr>
        <th scope="col"><span class="visually-hidden">Flag</span></th>
        <th scope="col">Field</th>
        <th scope="col">Now</th>
        ${compares && html`<th scope="col">${output.before === "approved" ? "Last approved" : "Before"}</th>`}
      </tr>
    </thead>
    <tbody>
      ${rows.map((row, at) => html`<${FieldRow} key=${row.path} ...${{ group, output, row, at, compares, flag: flags.get(row.path), onFlag }} />`)}
    </tbody>
  </table>`;
}

function FieldRow({ group, output, row, at, compares, flag, onFlag }) {
  // Another output, or another value of it, must not show the whole text of this one.
  const value = (node, version) =>
    node
      ? html`<${Tree} key=${`${output.output_id} ${output.stored}`} node=${node} load=${loader(group, output.output_id, version, { field: row.path, stored: output.stored })} />`
      : html`<span class="absent">missing</span>`;
  const name = [row.is_changed && "changed", flag && "flagged"].filter(Boolean).join(" ");
  const kind = !row.is_changed ? "" : !row.before ? "added" : !row.after ? "removed" : "changed";
  return html`<tr class=${name}>
    <td class="review-key">
      <${Button}
        small
        kind="quiet"
        icon="flag"
        data-row
        aria-label=${`Flag ${visibleText(fieldName(row.path))}`}
        aria-pressed=${Boolean(flag)}
        title=${flag ? "Remove the flag" : "Flag this field"}
        onClick=${() => onFlag(row.path)}
      />
      ${at < NUMBERED && html`<${Key}>${at + 1}<//>`}
    </td>
    <th scope="row"><${Text}>${fieldName(row.path)}<//>${kind && html` <${Badge} tone="warn">${kind}<//>`}</th>
    <td class="review-now">${value(row.after)}
      ${flag?.note && html`<p class="review-flag"><${Text}>${flag.note}<//></p>`}
    </td>
    ${compares &&
    html`<td class="review-was">${row.is_changed ? value(row.before, output.before) : html`<span class="muted">${row.after ? "same" : "–"}</span>`}</td>`}
  </tr>`;
}

/** extra: the fields that were opened, and where the next ones begin. moreFields: opens them. */
function Rest({ output, rows, onlyChanged, moreFields, extra }) {
  const why = whyNoDiff(output);
  const count = output.rows.length + output.left_out;
  const opened = extra?.rows.length ?? output.rows.length;
  const left = count - opened;
  const texts = [
    onlyChanged && why,
    onlyChanged && !why && opened > rows.length && `${plural(opened - rows.length, "unchanged field")} hidden`,
    left > 0 && extra?.next === null && `${plural(left, "more field")} in the details`, // with very long names
  ].filter(Boolean);
  return (texts.length > 0 || left > 0) && html`<div class="review-rest muted">
    ${texts.join(" · ")}
    ${left > 0 && extra?.next !== null && html` <${Button} small isBusy=${moreFields.isBusy} onClick=${moreFields.run}>Show ${plural(left, "more field")}<//>`}
    <${Problem} error=${moreFields.error} />
  </div>`;
}

function Files({ files }) {
  return html`<div class="review-files">
    <h2>Files</h2>
    <ul>
      ${files.map((file) => {
        const url = safeUrl(file.url);
        const host = url && url.host !== SERVICE.host && html` <span class="muted">${url.host}</span>`; // in ASCII
        const label = html`<${Icon} name="file" /><${Text}>${file.field || "file"}<//> <span class="muted"><${Text}>${file.file_type}<//></span>${host}`;
        return html`<li key=${file.url}>${url ? html`<a href=${url.href} target="_blank" rel="noreferrer noopener">${label}</a>` : label}</li>`;
      })}
    </ul>
  </div>`;
}

/**
 * Asks for a note on a flag, or on the output. Enter keeps it, Escape does not.
 * A changed note is in draft, so that the screen keeps it when somebody goes on without Enter.
 */
function NoteForm({ path, decision, draft, onCancel, onKeep }) {
  const flag = decision?.flags.find((one) => one.path === path);
  const known = (flag ? flag.note : decision?.comment) ?? "";
  const [note, setNote] = useState(known);
  const input = useRef();
  // Before the next key, which is a part of the note.
  useLayoutEffect(() => input.current.focus(), []);
  const written = note.trim();
  draft.current = written === known ? null : { path, note: written };
  const cancel = () => {
    draft.current = null;
    onCancel();
  };
  const keep = () => {
    draft.current = null;
    onKeep(path, written);
  };
  const onKeyDown = (event) => {
    if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
    if (event.key === "Enter" && event.target.closest("button")) return; // presses that button
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") cancel();
    else keep();
  };
  const label = `Note on ${path === null ? "the output" : fieldName(path)}`;
  return html`<div class="review-note" onKeyDown=${onKeyDown}>
    <strong><${Text}>${label}<//></strong>
    <input
      ref=${input}
      type="text"
      autocomplete="off"
      aria-label=${visibleText(label)}
      maxlength=${MAX_NOTE}
      value=${note}
      onInput=${(event) => setNote(event.target.value)}
    />
    <${Button} small kind="primary" onClick=${keep}>Keep <${Key}>Enter<//><//>
    <${Button} small kind="quiet" onClick=${cancel}>Cancel<//>
  </div>`;
}
