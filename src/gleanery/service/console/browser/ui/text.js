// Texts from data: as text nodes, isolated from the direction of the page, with visible controls.

import { html } from "../vendor/preact.js";
import { ago, fullTime, toDate } from "../format.js";
import { Icon } from "./icons.js";

// Controls of direction and invisible characters, which can make a text look like another one.
const CONTROLS = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb])/;

/** A text of a stranger. Controls are shown by their number. */
export function Text({ children }) {
  return html`<bdi>${visible(String(children))}</bdi>`;
}

const MAX_ELEMENTS = 500; // a text can consist of millions of controls

const codeOf = (control) => `U+${control.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Returns a text with visible controls for where no element can be: an attribute, an option, the title of the page. */
export function visibleText(text) {
  return String(text).split(CONTROLS).map((part, at) => (at % 2 ? `[${codeOf(part)}]` : part)).join("");
}

function visible(text) {
  if (!CONTROLS.test(text)) return text;
  const parts = text.split(CONTROLS);
  if (parts.length > 2 * MAX_ELEMENTS) return visibleText(text);
  return parts.map((part, at) => (at % 2 ? html`<span class="control" title="Invisible character">${codeOf(part)}</span>` : part));
}

/** Returns the URL if it is safe to open: http or https, without a name and password. */
export function safeUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  url.username = "";
  url.password = "";
  return url;
}

/** Returns a URL without what all have. The host is in ASCII, so that it cannot look like another. */
export function shortUrl(text) {
  const url = safeUrl(text);
  return url ? url.host + (url.pathname + url.search + url.hash).replace(/^\/$/, "") : text;
}

/** A link to a page outside. */
export function SourceLink({ url: text }) {
  const url = safeUrl(text);
  if (!url) return html`<${Text}>${text}<//>`;
  return html`<a class="source" href=${url.href} target="_blank" rel="noreferrer noopener" title=${url.href}
    ><bdi>${visible(shortUrl(text))}</bdi><${Icon} name="link" label="opens a new tab" /></a>`;
}

/** A time as "2 min. ago", with the exact time on hover. show: another text of it. */
export function Time({ at, show = ago }) {
  if (at === null || at === undefined) return html`<span class="muted">never</span>`;
  return html`<time datetime=${toDate(at).toISOString()} title=${fullTime(at)}>${show(at)}</time>`;
}
