// Live updates: waits for changes of the group, and loads the rows that are new.

import { useEffect, useRef, useState } from "../vendor/preact.js";
import { BACKGROUND, get, path } from "../api.js";

const WAIT_SECONDS = 25;
const PAUSE = 1000; // milliseconds between two waits, so that a busy group costs little
const BUSY_PAUSE = 3000; // after more changes than are read, because the person may be reading the rows
const RETRY_PAUSE = 10_000;
const MAX_CHANGES = 100;

/**
 * Calls onWake({ deleted, hasGap }, signal) after changes, until the tab is hidden. deleted: ids of outputs.
 * hasGap is true if there were others that are not known, so that the rows must be read again.
 * Returns "live", "hidden" or the error that interrupts the updates.
 */
export function useLive(group, onWake) {
  const [state, setState] = useState("live");
  const wake = useRef();
  wake.current = onWake;
  useEffect(() => {
    let controller = new AbortController();
    let hasGap = false;
    const change = () => {
      controller.abort();
      if (document.hidden) {
        hasGap = true;
        return setState("hidden");
      }
      controller = new AbortController();
      follow(group, (...values) => wake.current(...values), setState, controller.signal, hasGap);
    };
    change();
    document.addEventListener("visibilitychange", change);
    return () => {
      controller.abort();
      document.removeEventListener("visibilitychange", change);
    };
  }, [group]);
  return state;
}

async function follow(group, onWake, setState, signal, hasGap) {
  let cursor = null;
  while (!signal.aborted) {
    try {
      if (cursor === null) {
        cursor = await endOf(group, signal);
        await onWake({ deleted: [], hasGap }, signal);
      }
      setState("live");
      // Only the deletions matter. The rows come in the form of the grid, with its filters.
      const query = { cursor, wait: WAIT_SECONDS, limit: MAX_CHANGES };
      const { cursor: next, changes, metadata } = await get(path`v1/changes/${group}`, query, signal, BACKGROUND);
      const hasMore = metadata.next_cursor !== null;
      cursor = hasMore ? await endOf(group, signal) : next;
      if (changes.length) await onWake({ deleted: deletedIn(changes), hasGap: hasMore }, signal);
      await pause(hasMore ? BUSY_PAUSE : PAUSE, signal);
    } catch (error) {
      if (signal.aborted) return;
      setState(error);
      cursor = null;
      hasGap = true;
      await pause(RETRY_PAUSE, signal);
    }
  }
}

async function endOf(group, signal) {
  return (await get(path`v1/groups/${group}`, { limit: 1 }, signal, BACKGROUND)).cursor;
}

/** Returns the ids of the outputs whose last change is a deletion. */
function deletedIn(changes) {
  const last = new Map(changes.map((one) => [one.output_id, one.change]));
  return [...last.keys()].filter((id) => last.get(id) === "delete");
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
