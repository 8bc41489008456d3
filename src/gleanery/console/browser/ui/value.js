// Values of outputs in the form of the service: ["s", text], ["n", digits], ["o", members, length] …

import { html, useState } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { Button } from "./controls.js";
import { CopyButton } from "./copy.js";
import { Icon } from "./icons.js";
import { SourceLink, Text, safeUrl } from "./text.js";

/** Returns a value as one line of plain text, for cells and diffs. */
export function plain(node) {
  if (!node) return "";
  const [kind, content, length] = node;
  if (kind === "s" || kind === "n") return content + (length === undefined ? "" : "…");
  if (kind === "b") return String(content);
  if (kind === "z") return "null";
  if (kind === "a") return `[${content.map(plain).join(", ")}${content.length < length ? ", …" : ""}]`;
  const members = content.map(([name, value]) => `${name}: ${plain(value)}`);
  return `{${members.join(", ")}${content.length < length ? ", …" : ""}}`;
}

const NAMES = new Map([["$.files", "Files"], ["$.source_url", "Source"], ["$.data", "All data"], ["$.tags", "All tags"]]);

/** Returns the name of a field for people: "tag: country" for $.tags.country. */
export const fieldName = (path) => NAMES.get(path) ?? path.replace(/^\$\.tags(?:\.|(?=\[))/, "tag: ");

/** A value in one line. An absent value is shown as a dash. */
export function Inline({ node }) {
  if (node === undefined || node === null) return html`<span class="absent">–</span>`;
  const [kind, content, length] = node;
  if (kind === "s") {
    return html`<span class="value text"><${Text}>${content}<//>${length !== undefined && html`<${Rest} of=${length} />`}</span>`;
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
  const [kind, content, length] = node;
  if (kind === "s") return html`<${LongText} ...${{ content, length, path, load }} />`;
  if (kind !== "o" && kind !== "a") return html`<${Inline} node=${node} />`;
  if (length === 0) return html`<span class="value nested">${kind === "o" ? "{ }" : "[ ]"}</span>`;
  const entries = kind === "o" ? content : content.map((value, at) => [String(at), value]);
  const list = html`<dl class="tree">
    ${entries.map(([name, value, whole], at) => html`<${Row} key=${at} ...${{ name, whole, value, load, depth }} path=${`${path}/${whole ? `~#${at}` : escape(name)}`} />`)}
    ${content.length < length &&
    html`<div class="more"><dt>…</dt><dd class="muted">${plural(length - content.length, "more entry", "more entries")}</dd></div>`}
  </dl>`;
  if (depth === 0) return list;
  const summary = kind === "o" ? plural(length, "member") : plural(length, "element");
  return html`<details open=${depth < 3}><summary class="muted">${summary}</summary>${list}</details>`;
}

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

function LongText({ content, length, path, load }) {
  const [whole, setWhole] = useState(null);
  const [count, setCount] = useState(1);
  const [error, setError] = useState(null);
  if (length === undefined) {
    const isLink = /^https?:\/\//i.test(content) && safeUrl(content);
    return isLink ? html`<${SourceLink} url=${content} />` : html`<span class="value text"><${Text}>${content}<//></span>`;
  }
  if (whole !== null) return html`<${Steps} ...${{ whole, count }} onMore=${() => setCount(count + 1)} />`;
  const show = () => load(path).then(setWhole, setError);
  return html`<span class="value text"><${Text}>${content}<//></span>
    <${Rest} of=${length} />${load && html` <${Button} small kind="quiet" onClick=${show}>Show all<//>`}
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
