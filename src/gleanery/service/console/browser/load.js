// Hooks that load data for a component.

import { useCallback, useEffect, useRef, useState } from "./vendor/preact.js";

/**
 * Runs load(signal) when a dependency changes. Returns data, error, isLoading and reload().
 * The data of earlier dependencies stay while isLoading is true: an action that uses them must wait, or use what they say they are of.
 */
export function useLoad(load, dependencies) {
  const [state, setState] = useState({ isLoading: true });
  const [round, setRound] = useState(0);
  const current = useRef();
  current.current = load;
  useEffect(() => {
    const controller = new AbortController();
    setState((before) => ({ ...before, isLoading: true }));
    current.current(controller.signal).then(
      (data) => controller.signal.aborted || setState({ data, isLoading: false, of: dependencies }),
      (error) => controller.signal.aborted || setState({ error, isLoading: false, of: dependencies }),
    );
    return () => controller.abort();
  }, [...dependencies, round]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  const isStale = state.of?.some((one, at) => one !== dependencies[at]) ?? false; // before the effect has run
  return { ...state, isLoading: state.isLoading || isStale, reload };
}

/** Runs an action at a time. Returns run, submit (for a form), isBusy and error. */
export function useAction(action) {
  const [state, setState] = useState({ isBusy: false, error: null });
  const current = useRef();
  current.current = action;
  const isBusy = useRef(false);
  const run = useCallback(async (...values) => {
    if (isBusy.current) return undefined;
    isBusy.current = true;
    setState({ isBusy: true, error: null });
    try {
      const result = await current.current(...values);
      setState({ isBusy: false, error: null });
      return result;
    } catch (error) {
      setState({ isBusy: false, error });
      return undefined;
    } finally {
      isBusy.current = false;
    }
  }, []);
  const submit = useCallback((event) => {
    event.preventDefault();
    run();
  }, []);
  return { ...state, run, submit };
}

/** Reloads when the person comes back to this tab: others may have reviewed meanwhile. */
export function useReloadOnReturn(reload) {
  useEffect(() => {
    const listener = () => document.visibilityState === "visible" && reload();
    document.addEventListener("visibilitychange", listener);
    return () => document.removeEventListener("visibilitychange", listener);
  }, []);
}
