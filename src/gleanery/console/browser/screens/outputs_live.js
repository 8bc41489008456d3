// Live updates: waits for changes of the group, and loads the rows that are new.

import { useEffect, useRef, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";

const WAIT_SECONDS = 25;
const PAUSE = 1000; // milliseconds between two waits, so that a busy group costs little
const RETRY_PAUSE = 10_000;

/**
 * Calls onWake(deletedId, signal) after each change, until the tab is hidden.
 * Returns "live", "hidden" or the error that interrupts the updates.
 */
export function useLive(group, onWake) {
  const [state, setState] = useState("live");
  const wake = useRef();
  wake.current = onWake;
  useEffect(() => {
    let controller = new AbortController();
    const change = () => {
      controller.abort();
      if (document.hidden) return setState("hidden");
      controller = new AbortController();
      follow(group, (...values) => wake.current(...values), setState, controller.signal);
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

async function follow(group, onWake, setState, signal) {
  let cursor = null;
  while (!signal.aborted) {
    try {
      if (cursor === null) {
        cursor = await endOf(group, signal);
        await onWake(null, signal); // what came while the tab was hidden
      }
      setState("live");
      // Only the wake-up matters. The rows come in the form of the grid, with its filters.
      const query = { cursor, wait: WAIT_SECONDS, limit: 1 };
      const { cursor: next, changes } = await get(path`v1/changes/${group}`, query, signal);
      cursor = changes.length ? await endOf(group, signal) : next;
      if (changes.length) await onWake(changes[0].change === "delete" ? changes[0].output_id : null, signal);
      await pause(PAUSE, signal);
    } catch (error) {
      if (signal.aborted) return;
      setState(error);
      cursor = null;
      await pause(RETRY_PAUSE, signal);
    }
  }
}

async function endOf(group, signal) {
  return (await get(path`v1/groups/${group}`, { limit: 1 }, signal)).cursor;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
