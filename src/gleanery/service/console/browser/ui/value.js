// Values of outputs in the form of the service: ["s", text], ["n", digits], ["o", members, length] …
// A fourth element is the number of characters, elements or members that are left out at the start.

import { html, useState } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { Button } from "./controls.js";
import { CopyButton } from "./copy.js";
import { Icon } from "./icons.js";
import { SourceLink, Text, safeUrl } from "./text.js";

/** Returns a value as one line of plain text, for cells and diffs. */
export function plain(node) {
  if (!node) return "";
  const [kind, content, length, start = 0] = node;
  if (kind === "s" || kind === "n") return (start ? "…" : "") + content + (length === undefined ? "" : "…");
  if (kind === "b") return String(content);
  if (kind === "z") return "null";
  const parts = content.map(kind === "a" ? plain : ([name, value]) => `${name}: ${plain(value)}`);
  if (start) parts.unshift("…");
  if (start + content.length < length) parts.push("…");
  return kind === "a" ? `[${parts.join(", ")}]` : `{${parts.join(", ")}}`;
}

const NAMES = new Map([["$.files", "Files"], ["$.source_url", "Source"], ["$.data", "All data"], ["$.tags", "All tags"]]);

/** Returns the name of a field for people: "tag: country" for $.tags.country. */
export const fieldName = (path) => NAMES.get(path) ?? path.replace(/^\$\.tags(?:\.|(?=\[))/, "tag: ");

/** A value in one line. An absent value is shown as a dash. */
export function Inline({ node }) {
  if (node === undefined || node === null) return html`<span class="absent">–</span>`;
  const [kind, content, length, start] = node;
  if (kind === "s") {
    return html`<span class="value text">${start && "…"}<${Text}>${content}<//>${length !== undefined && html`<${Rest} of=${length} />`}</span>`;
  }
  if (kind === "z") return html`<span class="value null">null</span>`;
  const name = { n: "number", b: "boolean" }[kind] ?? "nested";
  return html`<span class=${`value ${name}`}><${Text}>${plain(node)}<//></span>`;
}

function Rest({ of }) {
  return html`<span class="rest">… ${number(of)} characters</span>`;
}

/** An old and a new value: 12.90 → 14.90. */
export function Change({ before, after }) {
  return html`<span class="change">
    <del><${Inline} node=${before} /></del>
    <${Icon} name="arrow" label="became" />
    <ins><${Inline} node=${after} /></ins>
  </span>`;
}

/** Returns the exact text of a value that is not truncated and not nested; otherwise undefined. */
function exactText([kind, content, length]) {
  if (kind === "z") return "null";
  return length === undefined ? String(content) : undefined;
}

/** A value as a tree that can be opened and closed. load(path, part) gets the exact text of a value as a whole, or of its name. */
export function Tree({ node, path = "", load, depth = 0 }) {
  const [kind, content, length, start = 0] = node;
  if (kind === "s") return html`<${LongText} ...${{ content, length, start, path, load }} />`;
  if (kind !== "o" && kind !== "a") return html`<${Inline} node=${node} />`;
  if (length === 0) return html`<span class="value nested">${kind === "o" ? "{ }" : "[ ]"}</span>`;
  const entries = kind === "o" ? content : content.map((value, at) => [String(start + at), value]);
  const left = length - start - content.length;
  const list = html`<dl class="tree">
    ${start > 0 && html`<${More}>${plural(start, "entry", "entries")} before<//>`}
    ${entries.map(([name, value, whole], at) => html`<${Row} key=${at} ...${{ name, whole, value, load, depth }} path=${`${path}/${whole ? `~#${start + at}` : escape(name)}`} />`)}
    ${left > 0 && html`<${More}>${plural(left, "more entry", "more entries")}<//>`}
  </dl>`;
  const shown = start > 0 || left > 0 ? html`<${Whole} ...${{ path, load }}>${list}<//>` : list;
  if (depth === 0) return shown;
  const summary = kind === "o" ? plural(length, "member") : plural(length, "element");
  return html`<details open=${depth < 3}><summary class="muted">${summary}</summary>${shown}</details>`;
}

const More = ({ children }) => html`<div class="more"><dt>…</dt><dd class="muted">${children}</dd></div>`;
const escape = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** whole: the length of a name that is truncated. */
function Row({ name, whole, value, path, load, depth }) {
  const loadName = load && ((at) => load(at, "name"));
  return html`<div class=${isNested(value) ? "nested" : ""}>
    <dt>${whole ? html`<${LongText} content=${name} length=${whole} path=${path} load=${loadName} />${load && html`<${CopyButton} label="the whole name" text=${() => loadName(path)} />`}` : html`<${Text}>${name}<//>`}${load && html`<${CopyButton} label=${name} text=${() => exactText(value) ?? load(path)} />`}</dt>
    <dd><${Tree} ...${{ node: value, path, load }} depth=${depth + 1} /></dd>
  </div>`;
}

function isNested(node) {
  return (node[0] === "o" || node[0] === "a") && node[2] > 0;
}

// A browser takes a minute to lay out some megabytes of text.
const STEP = 20_000, LONGEST = 400_000;

function LongText({ content, length, start, path, load }) {
  const isLink = length === undefined && /^https?:\/\//i.test(content) && safeUrl(content);
  if (isLink) return html`<${SourceLink} url=${content} />`;
  const text = html`<span class="value text">${start > 0 && "…"}<${Text}>${content}<//></span>`;
  return length === undefined ? text : html`<${Whole} ...${{ path, load }}>${text} <${Rest} of=${length} /><//>`;
}

/** A part of a value, and a button that shows the whole of it as text. */
function Whole({ path, load, children }) {
  const [whole, setWhole] = useState(null);
  const [count, setCount] = useState(1);
  const [error, setError] = useState(null);
  if (whole !== null) return html`<${Steps} ...${{ whole, count }} onMore=${() => setCount(count + 1)} />`;
  const show = () => load(path).then(setWhole, setError);
  return html`${children}${load && html` <${Button} small kind="quiet" onClick=${show}>Show all<//>`}
    ${error && html`<p class="problem"><${Text}>${error.message}<//></p>`}`;
}

function Steps({ whole, count, onMore }) {
  const steps = Array.from({ length: Math.min(count, Math.ceil(whole.length / STEP)) }, (_, at) => whole.slice(at * STEP, (at + 1) * STEP));
  const left = whole.length - count * STEP;
  return html`<span class="value text">${steps.map((text, at) => html`<${Text} key=${at}>${text}<//>`)}</span>
    ${left > 0 && html`<${Rest} of=${whole.length} />`}
    ${left > 0 && count * STEP < LONGEST && html` <${Button} small kind="quiet" onClick=${onMore}>Show more<//>`}
    ${left > 0 && count * STEP >= LONGEST && html`<p class="muted">Copy the value or download the output to see the rest.</p>`}`;
}
