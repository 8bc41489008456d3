// The key of the session, which all tabs of this origin share; and what proves a person's right to one.
//
// The cookie alone is not enough, because a browser also sends it to other ports of this host. The key alone is not enough,
// because no script can read the cookie. The key stays when the last tab closes: the service says when the session ends.

// Another service below another path of this origin has other keys.
const SERVICE_PATH = new URL("../../../", import.meta.url).pathname;
const NAME = `gleanery.key ${SERVICE_PATH}`;
const REASON = `gleanery.ended ${SERVICE_PATH}`;
const listeners = new Set();

// Another tab has signed in or out. The name is null if it has removed everything.
addEventListener("storage", ({ key: name }) => (name === NAME || name === null) && changed());

function changed() {
  for (const listener of listeners) listener(sessionKey());
}

export function sessionKey() {
  return localStorage.getItem(NAME);
}

export function setKey(key) {
  localStorage.removeItem(REASON);
  localStorage.setItem(NAME, key);
  changed();
}

/** Ends the session in all tabs. reason: a sentence for the login, if the person did not sign out. */
export function forgetKey(reason) {
  if (reason) localStorage.setItem(REASON, reason);
  else localStorage.removeItem(REASON);
  localStorage.removeItem(NAME);
  changed();
}

/** Returns why the last session has ended; null if the person signed out. */
export function endReason() {
  return localStorage.getItem(REASON);
}

/** Calls the listener with the new key, or with null, when a tab signs in or out. */
export function onKeyChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns the secret of a login link, and the name of its person if it has one. */
export function readLink(url) {
  const query = new URLSearchParams(url.split("#")[1]);
  return { link: query.get("login"), invited: query.get("person") };
}

/** Returns what a person has entered as a member of a request: a token, or the secret of a login link. */
export function proofOf(text) {
  const { link } = readLink(text);
  return link ? { link } : { token: text };
}
