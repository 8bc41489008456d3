// Lists that the service sends in pages.

import { html, useCallback, useEffect, useRef, useState } from "./vendor/preact.js";
import { pushQuery } from "./router.js";
import { Button } from "./ui/controls.js";
import { Empty, Loaded, Problem } from "./ui/feedback.js";
import { Panel } from "./ui/page.js";

const NOTHING = { items: [], next: null, isLoading: true };
const MAX_EMPTY_PAGES = 10;

/**
 * Loads the first page when a dependency changes. load(next, signal) resolves to { items, next, … }; next of the last page is null.
 * Returns items, isLoading, error, first (the first page), hasMore, more() and reload(), and for Loaded also data.
 */
export function usePages(load, dependencies) {
  const [state, setState] = useState(NOTHING);
  const current = useRef();
  const controller = useRef();
  current.current = load;
  const read = useCallback(async (next, before) => {
    controller.current?.abort();
    const { signal } = (controller.current = new AbortController());
    setState((shown) => ({ ...shown, isLoading: true, error: null }));
    try {
      const page = await current.current(next, signal);
      if (signal.aborted) return;
      const first = next === null ? page : undefined;
      setState((shown) => ({ items: [...before, ...page.items], next: page.next, first: first ?? shown.first, isLoading: false }));
    } catch (error) {
      if (!signal.aborted) setState((shown) => ({ ...shown, isLoading: false, error }));
    }
  }, []);
  useEffect(() => {
    read(null, []);
    return () => controller.current.abort();
  }, dependencies);
  return {
    ...state,
    data: state.first && state.items,
    hasMore: Boolean(state.next),
    more: () => read(state.next, state.items),
    reload: () => read(null, []),
  };
}

/**
 * Reads pages until one has items, at most ten. read(next) resolves to { items, next, … }.
 * With a filter, the service looks at a part of the rows at a time, so a page can be empty and not the last.
 */
export async function filledPage(read, next) {
  for (let round = 1; ; round++) {
    const page = await read(next);
    next = page.next;
    if (page.items.length || next === null || round === MAX_EMPTY_PAGES) return page;
  }
}

/** What a list shows if no loaded row fits the filters, which are the query of the route. */
export function NoMatch({ pages, noun, nouns = `${noun}s` }) {
  if (pages.hasMore) return html`<${Empty} icon="search" title=${`None among the newest ${nouns}`}><${More} pages=${pages} /><//>`;
  return html`<${Empty} icon="search" title=${`No ${noun} fits the filters`}><${Button} onClick=${() => pushQuery({})}>Remove all filters<//><//>`;
}

/** A button that loads the data of useLoad or usePages again. */
export function Refresh({ state, onClick = state.reload }) {
  return html`<${Button} icon="refresh" isBusy=${state.isLoading} onClick=${onClick}>Refresh<//>`;
}

/** The button that loads the next page. */
export function More({ pages }) {
  if (!pages.hasMore) return null;
  return html`<div class="more-pages">
    <${Problem} error=${pages.error} />
    <${Button} isBusy=${pages.isLoading} onClick=${pages.more}>Show more<//>
  </div>`;
}

/** A panel with all loaded items and the button that loads more. children is a function of the items; empty is shown if there are none. */
export function List({ pages, title, empty, children }) {
  return html`<${Loaded} state=${pages}>
    ${(items) => html`<${Panel} flush title=${title}>${items.length ? children(items) : empty}<${More} pages=${pages} /><//>`}
  <//>`;
}
