// The start of the console: finds the session, and shows the login or the screens.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { useRoute } from "./router.js";
import { Login } from "./screens/login.js";
import { onKeyChange, sessionKey } from "./session_key.js";
import { Shell, applyTheme } from "./shell.js";
import { Loading, Problem } from "./ui/feedback.js";

function App() {
  useRoute(); // a login link in the fragment changes what is shown
  const [session, setSession] = useState(undefined);
  const [error, setError] = useState(null);
  const load = async () => {
    setError(null);
    setSession(undefined); // until it is known who has signed in, nothing is sent in the name of that person
    const key = sessionKey();
    if (!key) return setSession(null);
    try {
      const found = await get("console/api/session");
      if (key === sessionKey()) setSession(found);
    } catch (problem) {
      if (problem.status !== 401) setError(problem);
    }
  };
  useEffect(() => {
    load();
    return onKeyChange(load);
  }, []);
  if (error) return html`<${Problem} error=${error} onRetry=${load} />`;
  if (session === undefined) return html`<${Loading} />`;
  if (session === null || location.hash.startsWith("#login=")) return html`<${Login} />`;
  return html`<${Shell} key=${session.session_id} session=${session} />`; // another person sees nothing of the one before
}

applyTheme();
render(html`<${App} />`, document.getElementById("app"));
