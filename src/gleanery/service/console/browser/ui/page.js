// The frame of the content: the heading of a screen, and panels.

import { html, useEffect } from "../vendor/preact.js";
import { href } from "../router.js";
import { Text, visibleText } from "./text.js";

/** The heading and the content of a screen. crumbs: [[label, segments], …]. */
export function Page({ title, crumbs = [], note, actions, tabs, children, wide }) {
  useEffect(() => {
    document.title = `${visibleText(title)} · Gleanery`;
  }, [title]);
  return html`<div class=${wide ? "page wide" : "page"}>
    <header class="head">
      <div>
        ${crumbs.length > 0 &&
        html`<nav class="crumbs" aria-label="Breadcrumb">
          ${crumbs.map(([label, segments]) => html`<a key=${label} href=${href(segments)}><${Text}>${label}<//></a>`)}
        </nav>`}
        <h1><${Text}>${title}<//></h1>
        ${note && html`<p class="note">${note}</p>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>
    ${tabs}
    ${children}
  </div>`;
}

/** A box with an optional heading. */
export function Panel({ title, actions, children, class: extra, flush }) {
  return html`<section class=${`panel ${flush ? "flush" : ""} ${extra ?? ""}`}>
    ${title && html`<header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${children}
  </section>`;
}
