// The rows that the grid has loaded: consecutive pages around a position, of bounded number.

import { BACKGROUND } from "../api.js";

const PAGE_ROWS = 100;
const MAX_PAGES = 20;
const MAX_EMPTY_PAGES = 10; // after so many pages without a match, the person decides about more

/**
 * A window on the outputs, newest first. fetchPage(query, signal, headers) loads a page of the service.
 * After each change it calls onChange. newer and older are null where the outputs end.
 * columns: [{ path, kind }, …]. If they are null, the first rows say which fit.
 */
export class RowWindow {
  constructor(fetchPage, onChange, columns) {
    Object.assign(this, { fetchPage, onChange, columns, rows: [], pages: [], newest: null, oldest: null });
    Object.assign(this, { error: null, retry: null, isLoaded: false, emptyPages: 0, version: 0, jumps: 0, seen: 0 });
    this.loading = {};
  }

  get newer() {
    return this.pages[0]?.newer ?? null;
  }

  get older() {
    return this.pages.at(-1)?.older ?? null;
  }

  /** True if the search pauses because it has found nothing for a long time. */
  get isPaused() {
    return this.emptyPages >= MAX_EMPTY_PAGES;
  }

  /** Shows the outputs from a position on; null means the newest one. The last call wins. */
  async jump(position, isReload = false) {
    this.wanted = { position, isReload };
    if (this.loading.jump) return; // one request at a time, while the person drags
    while (this.wanted) {
      const { position: next, isReload: keepsSeen } = this.wanted;
      this.wanted = null;
      this.stop();
      const query = next === null ? {} : { before: next + 1 };
      await this.#load("jump", query, () => this.jump(next, keepsSeen), (page) => this.#show(page, keepsSeen));
    }
  }

  /** Reads the rows at a position again. What is new above them is still new for the person. */
  reload(position) {
    return this.jump(position, position !== null);
  }

  #show(page, keepsSeen) {
    this.pages = [page];
    this.emptyPages = page.rows.length ? 0 : 1;
    this.isLoaded = true;
    this.jumps += 1;
    if (!keepsSeen) this.seen = page.newest ?? 0;
  }

  loadOlder() {
    if (this.older === null || this.loading.older || this.loading.jump) return undefined;
    return this.#load("older", { before: this.older }, () => this.loadOlder(), (page) => {
      if (page.rows.length) this.pages.push(page);
      else this.pages.at(-1).older = page.older;
      this.#countEmpty(page);
      while (this.pages.length > MAX_PAGES) this.pages.shift();
    });
  }

  loadNewer() {
    if (this.newer === null || this.loading.newer || this.loading.jump) return undefined;
    return this.#load("newer", { after: this.newer }, () => this.loadNewer(), (page) => {
      if (page.rows.length) this.pages.unshift(page);
      else this.pages[0].newer = page.newer;
      this.#countEmpty(page);
      while (this.pages.length > MAX_PAGES) this.pages.pop();
      if (page.newer === null) this.seen = Math.max(this.seen, this.pages[0].rows[0]?.cursor ?? 0);
    });
  }

  /** Loads what was stored since the person has seen the newest output, without showing it. */
  loadNewest(signal) {
    return this.#fetch({ after: this.seen, limit: 2 * PAGE_ROWS }, signal, BACKGROUND);
  }

  /** Adds a page from loadNewest above the first row. */
  add(page) {
    this.pages.unshift(page);
    while (this.pages.length > MAX_PAGES) this.pages.pop();
    this.seen = Math.max(this.seen, page.newest ?? 0, page.rows[0].cursor);
    this.#take(page);
  }

  /** Leaves out outputs that were deleted. */
  remove(outputIds) {
    const deleted = new Set(outputIds);
    for (const page of this.pages) page.rows = page.rows.filter((row) => !deleted.has(row.output_id));
    this.#take(this);
  }

  /** Continues a paused search. */
  resume() {
    this.emptyPages = 0;
    this.#changed();
  }

  /** Aborts all requests. */
  stop() {
    for (const controller of Object.values(this.loading)) controller.abort();
    this.loading = {};
  }

  async #fetch(query, ...rest) {
    const { columns } = this;
    const page = await this.fetchPage({ ...query, columns: columns && JSON.stringify(columns.map((column) => column.path)) }, ...rest);
    if (columns || !page.rows.length) return page;
    if (this.columns) return this.#fetch(query, ...rest); // another page has come first: all have the same columns
    this.columns = page.columns;
    return page;
  }

  async #load(name, query, retry, use) {
    const controller = new AbortController();
    this.loading[name] = controller;
    Object.assign(this, { error: null, retry: null });
    try {
      const page = await this.#fetch({ limit: PAGE_ROWS, ...query }, controller.signal);
      if (controller.signal.aborted) return;
      use(page);
      delete this.loading[name];
      this.#take(page);
    } catch (error) {
      if (controller.signal.aborted) return;
      delete this.loading[name];
      Object.assign(this, { error, retry });
      this.#changed();
    }
  }

  #take({ newest, oldest }) {
    Object.assign(this, { newest, oldest });
    const seen = new Set();
    const isNew = (row) => !seen.has(row.output_id) && seen.add(row.output_id);
    this.rows = this.pages.flatMap((page) => page.rows.filter(isNew)); // the first is the newest
    this.version += 1;
    this.#changed();
  }

  #countEmpty(page) {
    this.emptyPages = page.rows.length ? 0 : this.emptyPages + 1;
  }

  #changed() {
    this.onChange();
  }
}

/** Returns the index of the first row at or below a position. */
export function indexOf(rows, cursor) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].cursor > cursor) low = middle + 1;
    else high = middle;
  }
  return low;
}
