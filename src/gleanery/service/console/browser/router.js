// Routes in the fragment of the URL, such as #/groups/shop/outputs?job_id=7.

import { useEffect, useState } from "./vendor/preact.js";

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean).map(decode);
  return { segments, query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Returns the href of a route: href(["groups", group], { job_id }). */
export function href(segments, query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(filled).toString();
  return "#/" + segments.map(encodeURIComponent).join("/") + (text && "?" + text);
}

export function go(segments, query) {
  location.hash = href(segments, query);
}

export const currentQuery = () => read().query;

/** Changes the query of the current route without a new entry in the browser's history. */
export function replaceQuery(query) {
  history.replaceState(history.state, "", href(read().segments, query));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Changes the query of the current route with a new entry, so that Back undoes the change. state: of the entry. */
export function pushQuery(query, state = null) {
  const target = href(read().segments, query);
  if (target === location.hash) return;
  history.pushState(state, "", target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const update = () => setRoute(read());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

/** Returns the first screen whose pattern fits, and the parameters of the pattern. */
export function match(screens, segments) {
  for (const screen of screens) {
    const parts = screen.pattern.split("/");
    if (parts.length !== segments.length) continue;
    const parameters = {};
    const fits = parts.every((part, at) => {
      if (!part.startsWith(":")) return part === segments[at];
      parameters[part.slice(1)] = segments[at];
      return true;
    });
    if (fits) return { screen, parameters };
  }
  return null;
}
