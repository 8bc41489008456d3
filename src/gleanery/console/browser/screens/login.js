// The login: with a token, or with a one-time link in the fragment of the URL.

import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { useAction } from "../load.js";
import { setKey } from "../session_key.js";
import { Button, Field, TextField } from "../ui/controls.js";
import { Problem } from "../ui/feedback.js";

const NAME = "gleanery.person";

export function Login() {
  const link = /^#login=([\w-]+)$/.exec(location.hash)?.[1];
  const [token, setToken] = useState("");
  const [person, setPerson] = useState(localStorage.getItem(NAME) ?? "");
  const { run, isBusy, error } = useAction(async () => {
    const answer = await post("console/api/login", { person, ...(link ? { link } : { token }) });
    localStorage.setItem(NAME, person);
    // The link works once, so it does not stay in the history of the browser.
    if (link) history.replaceState(null, "", location.pathname);
    setKey(answer.key);
  });
  const submit = (event) => {
    event.preventDefault();
    run();
  };
  if (!isSecureContext) return html`<${Insecure} />`;
  return html`<main class="login">
    <form class="panel" onSubmit=${submit}>
      <span class="mark" aria-hidden="true"></span>
      <h1>Sign in to Gleanery</h1>
      <p class="muted">
        ${link ? "This link signs you in once." : html`Use an access token. The command <code>gleanery token create</code> makes one.`}
      </p>
      <${TextField}
        label="Your name"
        hint="It is shown with your reviews and in the audit log."
        name="person"
        autocomplete="name"
        required
        maxlength="100"
        value=${person}
        onValue=${setPerson}
      />
      ${!link &&
      html`<${Field} label="Access token">
        ${(attributes) => html`<input
          type="password"
          name="token"
          autocomplete="off"
          spellcheck=${false}
          required
          ...${attributes}
          value=${token}
          onInput=${(event) => setToken(event.target.value)}
        />`}
      <//>`}
      <${Problem} error=${error} />
      <${Button} kind="primary" type="submit" isBusy=${isBusy}>Sign in<//>
      ${link && error && html`<a href="#/">Sign in with a token</a>`}
    </form>
  </main>`;
}

function Insecure() {
  return html`<main class="login"><div class="panel">
    <h1>A secure connection is needed</h1>
    <p>The console works at an https address, or on the machine itself at localhost. Otherwise others on the network could read your session.</p>
  </div></main>`;
}
