// The key of the session: kept for this tab, and shared with other tabs of the same origin; and what proves a person's right to one.
//
// The cookie alone is not enough, because a browser also sends it to other ports of this host.

// Another service below another path of this origin has other keys.
const SERVICE_PATH = new URL("../../../", import.meta.url).pathname;
const NAME = `gleanery.key ${SERVICE_PATH}`;
const listeners = new Set();
const channel = new BroadcastChannel(`gleanery ${SERVICE_PATH}`);

channel.onmessage = ({ data }) => {
  if (data?.ask && sessionKey()) channel.postMessage({ key: sessionKey() });
  if (typeof data?.key === "string" && !sessionKey()) setKey(data.key);
  if (data?.forget && sessionKey() === data.forget) dropKey();
};

export function sessionKey() {
  return sessionStorage.getItem(NAME);
}

export function setKey(key) {
  sessionStorage.setItem(NAME, key);
  for (const listener of listeners) listener(key);
}

/** Ends the session in this tab and in those that share it. */
export function forgetKey() {
  const key = sessionKey();
  if (key) channel.postMessage({ forget: key });
  dropKey();
}

function dropKey() {
  sessionStorage.removeItem(NAME);
  for (const listener of listeners) listener(null);
}

/** Asks other tabs for their key, so that a new tab needs no login. */
export function askOtherTabs() {
  if (sessionKey()) return Promise.resolve();
  return new Promise((resolve) => {
    const stop = onKeyChange(done);
    const timer = setTimeout(done, 150);
    function done() {
      clearTimeout(timer);
      stop();
      resolve();
    }
    channel.postMessage({ ask: true });
  });
}

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
