// Downloads with the session of the console, without leaving the page.

import { send } from "./api.js";

const LARGEST = 100_000_000; // bytes that the page holds

/** Saves the response of a GET request as a file. Returns the response. */
export async function save(path, name, query) {
  const response = await send("GET", path, { query });
  saveBytes([await response.arrayBuffer()], name);
  return response;
}

/**
 * Saves a response of any size. onSize gets the bytes that have arrived. Throws if the download fails.
 * A large one starts again at the URL that createLink returns: the browser streams it to the disk, and says how that goes.
 * Returns true if the page has saved it, false if the browser does.
 */
export async function saveAny(path, name, query, { createLink, onSize, signal }) {
  const response = await send("GET", path, { query, signal });
  const parts = [];
  let size = Number(response.headers.get("content-length"));
  const reader = response.body.getReader();
  for (let arrived = 0; size <= LARGEST; size = Math.max(size, arrived)) {
    const { done, value } = await reader.read().catch(() => {
      throw new Error("The connection broke before the end of the file. Nothing is saved.");
    });
    if (done) {
      saveBytes(parts, name);
      return true;
    }
    parts.push(value);
    onSize((arrived += value.length));
  }
  reader.cancel();
  saveFrom(await createLink(), name);
  return false;
}

/** The browser does not know the type, so it never shows the file as a page. */
function saveBytes(parts, name) {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  saveFrom(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still read it
}

/** Saves what is at a URL that needs no session. The browser streams it to the disk: the page never has it in memory. */
export function saveFrom(url, name) {
  Object.assign(document.createElement("a"), { href: url, download: name, rel: "noreferrer" }).click();
}
