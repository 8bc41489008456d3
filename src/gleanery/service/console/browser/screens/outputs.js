// The outputs of a group: filters, a grid over any number of outputs, a time bar, and one in detail.

import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { plural } from "../format.js";
import { useKeys } from "../keys.js";
import { useLoad } from "../load.js";
import { currentQuery, pushQuery, replaceQuery } from "../router.js";
import { Button } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { plain } from "../ui/value.js";
import { Text, safeUrl, visibleText } from "../ui/text.js";
import { ExportButton } from "./export_dialog.js";
import { GroupPage, useGroupName } from "./group_page.js";
import { OutputDetail } from "./output_detail.js";
import { ColumnDialog, storeColumns, storedColumns } from "./outputs_columns.js";
import { Filters, filtersOf } from "./outputs_filters.js";
import { Grid } from "./outputs_grid.js";
import { useLive } from "./outputs_live.js";
import { RowWindow } from "./outputs_rows.js";
import { TimeBar } from "./outputs_timebar.js";

const NARROW = matchMedia("(max-width: 760px)");

export function Outputs({ group, query, session }) {
  const [columns, setColumns] = useState(() => storedColumns(group));
  const [isChoosing, setChoosing] = useState(false);
  const filters = filtersOf(query);
  const [rows, view, onView] = useRows(group, query, filters, columns);
  const isMissing = !rows.isLoaded && [403, 404].includes(rows.error?.status);
  const choose = (chosen) => {
    storeColumns(group, chosen);
    setColumns(chosen);
    setChoosing(false);
  };
  const actions = html`<${Button} icon="fields" disabled=${!rows.isLoaded} onClick=${() => setChoosing(true)}>Columns<//>
    <${ExportButton} group=${group} filters=${filters} />`;
  useGroupName(group);
  return html`<${GroupPage} group=${group} current="Outputs" wide actions=${actions}>
    ${isMissing ? html`<${Loaded} state=${{ error: rows.error, reload: rows.retry }} />` : html`<${Screen} ...${{ group, query, session, filters, rows, view, onView }} />`}
    ${isChoosing && html`<${ColumnDialog} ...${{ group, columns: rows.columns ?? [] }} onDone=${choose} onClose=${() => setChoosing(false)} />`}
  <//>`;
}

function Screen({ group, query, session, filters, rows, view, onView }) {
  const isReady = rows.isLoaded || Boolean(rows.error); // the first rows come before what is said about them
  const about = useLoad(async (signal) => isReady && get(path`v1/groups/${group}`, { limit: 100 }, signal), [group, isReady, rows.newest]).data || undefined;
  const [selected, setSelected] = useState(query.output ?? null);
  const grid = useRef();
  const isNarrow = useNarrow();
  const [pending, showPending, liveState] = useNewRows(group, rows, view);
  const setFilters = (next) => pushQuery({ ...next, output: query.output });
  const open = (outputId) => {
    if (query.output) replaceQuery({ ...query, output: outputId });
    else pushQuery({ ...query, output: outputId }, { isOpened: true });
  };
  const close = () => {
    closeEntry(query);
    grid.current?.focus();
  };
  const move = useSelection({ rows, grid, selected, setSelected, open, isOpen: Boolean(query.output) });
  useGridKeys({ rows, grid, move, selected, close, isOpen: Boolean(query.output) });
  const isEmpty = rows.isLoaded && rows.rows.length === 0 && rows.older === null && rows.newer === null && !rows.error;
  return html`
    <div class="outputs-bar">
      <${Filters} filters=${filters} group=${about} onFilters=${setFilters} />
      <div class="outputs-state">${rows.rows.length > 0 && html`<span>${countOf(rows, filters, about)}</span>`}<${LiveState} state=${liveState} /></div>
    </div>
    <div class=${query.output ? "outputs outputs-open" : "outputs"} onKeyDown=${(event) => pressKey(event, move, grid, () => selected && open(selected))}>
      <div class="outputs-list">
        ${pending > 0 && html`<button type="button" class="outputs-pill" onClick=${showPending}>${pillText(pending)}</button>`}
        ${isEmpty
          ? html`<${NoRows} filters=${filters} onClear=${() => setFilters({})} />`
          : html`<${Grid} ...${{ rows, columns: rows.columns ?? [], isNarrow, selected, onView, control: grid }}
              rowHeight=${isNarrow ? 66 : 40} onSelect=${setSelected} onOpen=${open} />`}
        ${rows.newest !== null && html`<${TimeBar} newest=${rows.newest} oldest=${rows.oldest ?? rows.newest} ...${view} onJump=${(at) => rows.jump(at)} />`}
      </div>
      ${query.output && html`<${OutputDetail} group=${group} outputId=${query.output} onClose=${close} session=${session} />`}
    </div>`;
}

/** Closes the output as Back does, if the list was shown before it. So the history has no entry for it. */
function closeEntry(query) {
  if (!history.state?.isOpened) return replaceQuery({ ...query, output: undefined });
  history.replaceState(null, ""); // a second call must not leave the list
  history.back();
}

/** Returns the loaded rows, the visible part of them, and a function that says what is visible. */
function useRows(group, query, filters, columns) {
  const [, update] = useReducer((count) => count + 1, 0);
  const [view, setView] = useState({ isAtTop: true });
  const written = useRef(query.at);
  const key = JSON.stringify([group, filters, columns]);
  const rows = useMemo(() => {
    const fixed = { ...filters, changes: true };
    return new RowWindow((more, ...rest) => get(path`console/api/rows/${group}`, { ...fixed, ...more }, ...rest), update, columns);
  }, [key]);
  const shownOutput = useRef(query.output);
  useLayoutEffect(() => {
    written.current = query.at;
    rows.jump(Number(query.at) || null);
    return () => rows.stop();
  }, [rows]);
  useEffect(() => {
    const isOther = query.output !== shownOutput.current;
    shownOutput.current = query.output;
    if (query.at === written.current) return;
    written.current = query.at;
    if (!isOther) rows.jump(Number(query.at) || null); // Back closes an output, and leaves the list where it is
  }, [query.at, query.output]);
  useEffect(() => {
    // The position is in the URL, so that a reload or a bookmark shows the same rows.
    const timer = setTimeout(() => {
      const at = view.isAtTop || view.top === undefined ? undefined : String(view.top);
      if (at === written.current) return;
      written.current = at;
      replaceQuery({ ...currentQuery(), at });
    }, 500);
    return () => clearTimeout(timer);
  });
  const onView = (top, bottom, isAtTop) => {
    if (top !== view.top || bottom !== view.bottom || isAtTop !== view.isAtTop) setView({ top, bottom, isAtTop });
  };
  return [rows, view, onView];
}

/** Returns the number of new rows that wait, a function that shows them, and the state of the updates. */
function useNewRows(group, rows, view) {
  const [page, setPage] = useState(null);
  const current = useRef();
  current.current = { rows, isAtTop: view.isAtTop, top: view.top };
  const state = useLive(group, async ({ deleted, hasGap }, signal) => {
    const { rows: before } = current.current;
    if (!before.isLoaded) return;
    const { jumps } = before;
    const found = await before.loadNewest(signal);
    const { rows: loaded, isAtTop, top } = current.current;
    if (loaded !== before) return;
    if (deleted.length) loaded.remove(deleted);
    if (hasGap) loaded.reload(isAtTop ? null : (top ?? null));
    // After a jump, the rows are others than those that were asked for, and are read at its time.
    if (!found.rows.length || loaded.jumps !== jumps || (hasGap && isAtTop)) return;
    if (isAtTop && found.newer === null) loaded.add(found);
    else setPage({ of: loaded, count: found.newer === null ? found.rows.length : Infinity });
  });
  const count = page?.of === rows ? page.count : 0;
  const show = () => {
    setPage(null);
    rows.jump(null);
  };
  useEffect(() => {
    if (view.isAtTop && count > 0) show(); // the person has scrolled up to them
  }, [view.isAtTop, count]);
  return [count, show, state];
}

function useSelection({ rows, grid, selected, setSelected, open, isOpen }) {
  return (step) => {
    const list = rows.rows;
    const at = list.findIndex((row) => row.output_id === selected);
    const next = at < 0 ? grid.current.firstVisible : Math.min(Math.max(at + step, 0), list.length - 1);
    if (!list[next]) return;
    setSelected(list[next].output_id);
    grid.current.show(next);
    grid.current.focus();
    if (isOpen) open(list[next].output_id);
  };
}

function useGridKeys({ rows, grid, move, selected, close, isOpen }) {
  const jump = async (position) => {
    await rows.jump(position);
    grid.current?.focus();
  };
  useKeys(
    [
      { keys: ["j"], label: "Next output", repeats: true, run: () => move(1) },
      { keys: ["k"], label: "Previous output", repeats: true, run: () => move(-1) },
      { keys: ["/"], label: "Filter", run: () => document.querySelector(".outputs-value")?.focus() },
      { keys: ["Home"], label: "Newest outputs", run: () => jump(null) },
      { keys: ["End"], label: "Oldest outputs", run: () => rows.oldest !== null && jump(rows.oldest) },
      { keys: ["o"], label: "Open the source of the output", run: () => openSource(rows, selected) },
      ...(isOpen ? [{ keys: ["Escape"], label: "Close the output", run: close }] : []),
    ],
    { title: "Outputs" },
  );
}

function openSource(rows, selected) {
  const row = rows.rows.find((one) => one.output_id === selected);
  const url = row && safeUrl(plain(row.source_url));
  if (url) open(url.href, "_blank", "noreferrer,noopener");
}

/** Keys of the grid itself. Enter is not a shortcut of the screen: it also presses buttons. */
function pressKey(event, move, grid, openSelected) {
  if (!event.target.classList?.contains("outputs-grid")) return;
  const size = grid.current.size;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: size, PageUp: -size };
  if (event.key in steps) move(steps[event.key]);
  else if (event.key === "Enter") openSelected();
  else return;
  event.preventDefault();
}

/** Returns how many outputs fit, as far as that is known without counting them. */
function countOf(rows, filters, group) {
  if (rows.older === null && rows.newer === null) return plural(rows.rows.length, "output");
  const names = Object.keys(filters).join();
  const known = { "": group, job_id: group?.jobs.find((job) => job.job_id === filters.job_id) }[names];
  return known ? plural(known.outputs, "output") : `at least ${plural(rows.rows.length, "output")}`;
}

function pillText(count) {
  return count === Infinity ? "More than 200 new changes" : plural(count, "new change");
}

function LiveState({ state }) {
  if (state === "live") return html`<span class="outputs-live" title="New changes appear at once"><i></i>Live</span>`;
  if (state === "hidden") return null;
  return html`<span class="outputs-live outputs-late" role="status" title=${visibleText(state.message)}><i></i>Updates interrupted: <${Text}>${state.message}<//></span>`;
}

function NoRows({ filters, onClear }) {
  if (Object.keys(filters).length) {
    return html`<${Empty} icon="filter" title="No output fits the filters">
      <p>A job and a URL must match exactly.</p>
      <${Button} onClick=${onClear}>Remove all filters<//>
    <//>`;
  }
  return html`<${Empty} icon="inbox" title="No outputs yet">Outputs appear here as soon as a scraper stores them in this group.<//>`;
}

function useNarrow() {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const update = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", update);
    return () => NARROW.removeEventListener("change", update);
  }, []);
  return isNarrow;
}
