// The start of the console: finds the session, and shows the login or the screens.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { useRoute } from "./router.js";
import { Login } from "./screens/login.js";
import { askOtherTabs, onKeyChange, sessionKey } from "./session_key.js";
import { Shell, applyTheme } from "./shell.js";
import { Loading, Problem } from "./ui/feedback.js";

function App() {
  useRoute(); // a login link in the fragment changes what is shown
  const [session, setSession] = useState(undefined);
  const [error, setError] = useState(null);
  const load = async () => {
    setError(null);
    await askOtherTabs();
    if (!sessionKey()) return setSession(null);
    try {
      setSession(await get("console/api/session"));
    } catch (problem) {
      if (problem.status === 401) setSession(null);
      else setError(problem);
    }
  };
  useEffect(() => {
    load();
    return onKeyChange((key) => (key ? load() : setSession(null)));
  }, []);
  if (error) return html`<${Problem} error=${error} onRetry=${load} />`;
  if (session === undefined) return html`<${Loading} />`;
  if (session === null || location.hash.startsWith("#login=")) return html`<${Login} />`;
  return html`<${Shell} session=${session} />`;
}

applyTheme();
render(html`<${App} />`, document.getElementById("app"));
