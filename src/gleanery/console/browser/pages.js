// Hook that loads a list page by page.

import { html, useState } from "./vendor/preact.js";
import { useAction, useLoad } from "./load.js";
import { Button } from "./ui/controls.js";
import { Problem } from "./ui/feedback.js";

/** load(cursor, signal) returns { items, next }. Returns useLoad's state with the items, and more. */
export function usePages(load, dependencies) {
  const first = useLoad((signal) => load(undefined, signal), dependencies);
  const [rest, setRest] = useState({ items: [] });
  // Pages that followed an older first page are not shown.
  const shown = rest.of === first.data ? rest : { items: [], next: first.data?.next };
  const more = useAction(async () => {
    const page = await load(shown.next);
    setRest({ of: first.data, items: [...shown.items, ...page.items], next: page.next });
  });
  const data = first.data && [...first.data.items, ...shown.items];
  return { ...first, data, hasMore: Boolean(data && shown.next), more };
}

/** The button that loads the next page of usePages. */
export function More({ pages }) {
  const { hasMore, more } = pages;
  if (!hasMore) return null;
  return html`<div class="more-pages">
    <${Problem} error=${more.error} />
    <${Button} isBusy=${more.isBusy} onClick=${() => more.run()}>Show more<//>
  </div>`;
}
