// Requests to the service: with the key of the session, and errors as exceptions.

import { forgetKey, sessionKey } from "./session_key.js";

// This file is at <service>/console/assets/<version>/api.js, also below a path prefix.
export const SERVICE = new URL("../../../", import.meta.url);

export const KEY_HEADER = "gleanery-session-key";
/** Headers of a request that the page repeats by itself, so that it does not keep the session in use. */
export const BACKGROUND = { "gleanery-background": "1" };

/** An error response of the service, or a failed connection (status 0). */
export class ApiError extends Error {
  constructor(status, details) {
    super(details.map((detail) => detail.msg).join(" "));
    this.status = status;
    this.details = details;
  }

  /** The message for one member of a form; undefined if the error is about something else. */
  of(name) {
    return this.details.find((detail) => detail.loc?.at(-1) === name)?.msg;
  }
}

/** Returns the URL of a path of the service. Members of query that are null or "" are left out. */
export function urlOf(path, query = {}) {
  const url = new URL(path, SERVICE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.append(name, value);
  }
  return url;
}

/** Joins path segments, and encodes those that come from data: path`v1/groups/${group}`. */
export function path(strings, ...values) {
  return strings.reduce((all, part, at) => all + encodeURIComponent(values[at - 1]) + part);
}

/**
 * Sends a request and returns the fetch Response. Throws ApiError unless the status is 2xx.
 * options: query, body (JSON), text (a body of its own), type, headers, signal.
 */
export async function send(method, path, options = {}) {
  const headers = new Headers(options.headers);
  const key = headers.has(KEY_HEADER) ? null : sessionKey();
  if (key) headers.set(KEY_HEADER, key);
  let body = options.text;
  if (options.body !== undefined) {
    body = JSON.stringify(options.body);
    headers.set("content-type", "application/json");
  } else if (body !== undefined) {
    headers.set("content-type", options.type ?? "text/plain");
  }
  const request = { method, headers, body, signal: options.signal, cache: "no-store" };
  let response;
  try {
    response = await fetch(urlOf(path, options.query), request);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, [{ msg: "The service cannot be reached. Is it running?" }]);
  }
  if (response.ok) return response;
  const error = await readError(response);
  // A login that fails says nothing about the session that the browser has.
  // Nor does a late answer to the key of an earlier session.
  if (error.status === 401 && key && key === sessionKey() && path !== "console/api/login") forgetKey(error.message);
  throw error;
}

async function readError(response) {
  let details;
  try {
    details = (await response.json()).detail;
  } catch {
    details = undefined;
  }
  if (!Array.isArray(details)) details = [{ msg: `The service answered ${response.status}.` }];
  return new ApiError(response.status, details);
}

export async function get(path, query, signal, headers) {
  return (await send("GET", path, { query, signal, headers })).json();
}

export async function post(path, body, options = {}) {
  return (await send("POST", path, { body, ...options })).json();
}

export async function remove(path, query) {
  return (await send("DELETE", path, { query })).json();
}
