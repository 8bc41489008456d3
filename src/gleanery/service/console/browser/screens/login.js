// The login: with a token, or with a one-time link in the fragment of the URL.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { KEY_HEADER, post, send } from "../api.js";
import { useAction } from "../load.js";
import { endReason, proofOf, readLink, sessionKey, setKey } from "../session_key.js";
import { Logo } from "../shell.js";
import { Button, Checkbox, TextField } from "../ui/controls.js";
import { Problem } from "../ui/feedback.js";
import { Text } from "../ui/text.js";

const NAME = "gleanery.person";

/** Checks that the browser has stored the cookie: without it, every request would fail. */
async function checkCookie(key) {
  try {
    await send("GET", "console/api/session", { headers: { [KEY_HEADER]: key } });
  } catch (error) {
    if (error.status !== 401) throw error;
    throw new Error("Your browser has not stored the cookie of the session. Allow cookies for this address. Safari needs https on localhost as well.");
  }
}

export function Login() {
  const { link, invited } = readLink(location.hash);
  const [token, setToken] = useState("");
  const [person, setPerson] = useState(localStorage.getItem(NAME) ?? "");
  const [stay, setStay] = useState(true);
  const { submit, isBusy, error } = useAction(async () => {
    const proof = link ? { link } : proofOf(token);
    // Sent only if it differs from the default: during an upgrade, an older node does not know it.
    const answer = await post("console/api/login", { person: invited ?? person, ...(stay ? {} : { stay }), ...proof });
    await checkCookie(answer.key);
    if (!invited) localStorage.setItem(NAME, person);
    // The link works once, so it does not stay in the history of the browser.
    if (link) history.replaceState(null, "", location.pathname);
    setKey(answer.key);
  });
  const form = useRef();
  useEffect(() => [...(form.current?.elements ?? [])].find((one) => !one.value)?.focus(), []); // the first empty field, or the button
  if (!isSecureContext) return html`<${Insecure} />`;
  return html`<main class="login">
    <form ref=${form} class="panel" onSubmit=${submit}>
      <${Logo} />
      <h1>Sign in to Gleanery</h1>
      ${endReason() && html`<p class="warning" role="status"><${Text}>${endReason()}<//></p>`}
      <p class="muted">
        ${link ? html`This link signs you in once${invited && html`, as <strong><${Text}>${invited}<//></strong>`}.` : "Use an access token or a login link. Your operator can give you one."}
      </p>
      ${!invited &&
      html`<${TextField}
        label="Your name"
        hint="It is shown with your reviews and in the audit log."
        name="person"
        autocomplete="name"
        required
        maxlength="100"
        value=${person}
        onValue=${setPerson}
      />`}
      ${!link &&
      html`<${TextField} label="Access token or login link" type="password" name="token" required value=${token} onValue=${setToken} />`}
      <div>
        <${Checkbox} label="Stay signed in" checked=${stay} onValue=${setStay} aria-describedby="stay-hint" />
        <p class="hint" id="stay-hint">The session lasts when you close the browser, for up to 8 hours without use. Remove the tick on a shared computer.</p>
      </div>
      <${Problem} error=${error} />
      <${Button} kind="primary" type="submit" isBusy=${isBusy}>Sign in<//>
      ${link && (error || sessionKey()) && html`<a href="#/">${sessionKey() ? "Stay signed in as you are" : "Sign in with a token"}</a>`}
    </form>
  </main>`;
}

function Insecure() {
  return html`<main class="login"><div class="panel">
    <h1>A secure connection is needed</h1>
    <p>The console works at an https address, or on the machine itself at localhost. Otherwise others on the network could read your session.</p>
    <p class="muted">Serve it with <code>--tls-cert</code> and <code>--tls-key</code> or behind a proxy with TLS, or forward the port: <code>ssh -L 8000:localhost:8000 host</code>, and open http://localhost:8000/console.</p>
  </div></main>`;
}
