// Downloads with the session of the console, without leaving the page.

import { send } from "./api.js";

/** Saves the response of a GET request as a file. Its type is unknown to the browser, so it is never shown as a page. Returns the response. */
export async function save(path, name, query) {
  const response = await send("GET", path, { query });
  const blob = new Blob([await response.arrayBuffer()], { type: "application/octet-stream" });
  const url = URL.createObjectURL(blob);
  saveFrom(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still read it
  return response;
}

/** Saves what is at a URL that needs no session. The browser streams it to the disk: the page never has it in memory. */
export function saveFrom(url, name) {
  Object.assign(document.createElement("a"), { href: url, download: name, rel: "noreferrer" }).click();
}
