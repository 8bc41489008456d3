// One output of a sample: its fields beside the last approved ones, and the form for notes.

import { html, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { SERVICE } from "../api.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { Badge, Button, Key } from "../ui/controls.js";
import { Icon } from "../ui/icons.js";
import { Panel } from "../ui/page.js";
import { SourceLink, Text, Time, safeUrl, visibleText } from "../ui/text.js";
import { Tree, fieldName } from "../ui/value.js";
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

/** Returns the rows to show. The first nine fields always have a row, so that their keys stay the same. */
export function visibleRows(sample, output, onlyChanged) {
  const rows = new Map(output.rows.map((row) => [row.at, row]));
  if (onlyChanged && !whyNoDiff(output)) return output.rows.filter((row) => row.is_changed).map(named);
  const places = new Set([...rows.keys(), ...sample.fields.slice(0, NUMBERED).keys()]);
  return [...places].sort((one, other) => one - other).map((at) => named(rows.get(at) ?? { at, after: null, before: null }));

  function named(row) {
    return { ...row, path: sample.fields[row.at] };
  }
}

/** The output that is decided now. edit: { path } while a note is written. */
export function Output({ group, output, rows, decision, edit, draft, actions, onCancel, onlyChanged }) {
  const [tone, approval] = APPROVALS[output.approval];
  return html`<${Panel} flush>
    <header class="review-about">
      <div>
        <div class="review-badges">
          ${REASONS[output.reason] && html`<${Badge} tone="info">${REASONS[output.reason]}<//>`}
          <${Badge} tone=${tone}>${approval}<//>
          <${Verdict} decision=${decision} />
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
    <${Fields} ...${{ output, rows, decision, onFlag: actions.toggleFlag }} />
    <${Rest} output=${output} rows=${rows} onlyChanged=${onlyChanged} />
    ${notesOf(decision).map((note) => html`<p class="review-comment"><${Icon} name="comment" label="Note" /><${Text}>${note}<//></p>`)}
    ${output.files.length > 0 && html`<${Files} files=${output.files} />`}
  <//>`;
}

/** Returns the notes on the output as a whole. */
const notesOf = (decision) => [decision?.flags.find((flag) => flag.path === null)?.note, decision?.comment].filter(Boolean);

function Verdict({ decision }) {
  if (decision?.flags.length) {
    const whole = decision.flags.some((flag) => flag.path === null);
    return html`<${Badge} tone="bad"><${Icon} name="flag" />${whole ? "Flagged" : plural(decision.flags.length, "flagged field")}<//>`;
  }
  if (decision?.isOk) return html`<${Badge} tone="good"><${Icon} name="check" />OK<//>`;
  return html`<${Badge}>Not decided<//>`;
}

function Fields({ output, rows, decision, onFlag }) {
  const compares = output.approval === "older";
  const flags = new Map(decision?.flags.map((flag) => [flag.path, flag]));
  return html`<table class="review-fields">
    <thead>
      <tr>
        <th scope="col"><span class="visually-hidden">Flag</span></th>
        <th scope="col">Field</th>
        <th scope="col">Now</th>
        ${compares && html`<th scope="col">Last approved</th>`}
      </tr>
    </thead>
    <tbody>
      ${rows.map((row, at) => html`<${FieldRow} key=${row.path} ...${{ row, at, compares, flag: flags.get(row.path), onFlag }} />`)}
    </tbody>
  </table>`;
}

function FieldRow({ row, at, compares, flag, onFlag }) {
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
        aria-pressed=${flag ? "true" : "false"}
        title=${flag ? "Remove the flag" : "Flag this field"}
        onClick=${() => onFlag(row.path)}
      />
      ${at < NUMBERED && html`<${Key}>${at + 1}<//>`}
    </td>
    <th scope="row"><${Text}>${fieldName(row.path)}<//>${kind && html` <${Badge} tone="warn">${kind}<//>`}</th>
    <td class="review-now"><${Value} node=${row.after} />
      ${flag?.note && html`<p class="review-flag"><${Text}>${flag.note}<//></p>`}
    </td>
    ${compares &&
    html`<td class="review-was">${row.is_changed ? html`<${Value} node=${row.before} />` : html`<span class="muted">${row.after ? "same" : "–"}</span>`}</td>`}
  </tr>`;
}

function Value({ node }) {
  return node ? html`<${Tree} node=${node} />` : html`<span class="absent">missing</span>`;
}

function Rest({ output, rows, onlyChanged }) {
  const why = whyNoDiff(output);
  const hidden = onlyChanged && !why ? output.rows.length - rows.length : 0;
  const texts = [
    onlyChanged && why,
    hidden > 0 && `${plural(hidden, "unchanged field")} hidden`,
    output.left_out > 0 && `${plural(output.left_out, "more field")} too many to show`,
  ].filter(Boolean);
  return texts.length > 0 && html`<p class="review-rest muted">${texts.join(" · ")}</p>`;
}

function Files({ files }) {
  return html`<div class="review-files">
    <h3>Files</h3>
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
