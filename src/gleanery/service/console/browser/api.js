// Requests to the service: with the key of the session, and errors as exceptions.

import { forgetKey, sessionKey } from "./session_key.js";

// This file is at <service>/console/assets/<version>/api.js, also below a path prefix.
export const SERVICE = new URL("../../../", import.meta.url);

export const KEY_HEADER = "gleanery-session-key";
/** Headers of a request that the page repeats by itself, so that it does not keep the session in use. */
export const BACKGROUND = { "gleanery-background": "1" };

/** An error response of the service. Status 0: the service did not answer, or something else did. */
export class ApiError extends Error {
  constructor(status, details) {
    super(details.map((detail) => detail.msg).join(" "));
    this.status = status;
    this.details = details;
  }

  /** The message for one member of a form, or for an element of it; undefined if the error is about something else. */
  of(name) {
    return this.details.find((detail) => detail.loc?.includes(name))?.msg;
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
 * Sends a request and returns the fetch Response. Throws ApiError unless the service has answered with the status 2xx.
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
  // The service sends a page only as a file. Otherwise it is the login of a proxy, or its message.
  const { headers: answered } = response;
  if (answered.get("content-type")?.startsWith("text/html") && !answered.has("content-disposition")) throw notOurs(response);
  if (response.ok) return response;
  const error = await readError(response);
  // A login that fails says nothing about the session that the browser has.
  // Nor does a late answer to the key of an earlier session.
  if (error.status === 401 && key && key === sessionKey() && path !== "console/api/login") forgetKey(error.message);
  throw error;
}

function notOurs({ status, headers }) {
  const type = headers.get("content-type") ?? "no type";
  return new ApiError(0, [{ msg: `This answer is not from the service (status ${status}, ${type}). A proxy or its login may be in between: reload the page.` }]);
}

async function readError(response) {
  const detail = (await jsonOf(response))?.detail;
  return Array.isArray(detail) ? new ApiError(response.status, detail) : notOurs(response);
}

/** Returns the JSON of a response. parse: reads its text in another way. */
export async function jsonOf(response, parse = JSON.parse) {
  const text = await response.text().catch(() => {
    throw new ApiError(0, [{ msg: "The connection broke before the end of the answer." }]);
  });
  try {
    return parse(text);
  } catch {
    throw notOurs(response);
  }
}

export async function get(path, query, signal, headers) {
  return jsonOf(await send("GET", path, { query, signal, headers }));
}

export async function post(path, body, options = {}) {
  return jsonOf(await send("POST", path, { body, ...options }));
}

export async function remove(path, query) {
  return jsonOf(await send("DELETE", path, { query }));
}
