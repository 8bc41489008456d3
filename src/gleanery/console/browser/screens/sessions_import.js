// The import of a session: a document is pasted or dropped, previewed without values, and stored.

import { html, useState } from "../vendor/preact.js";
import { send } from "../api.js";
import { plural } from "../format.js";
import { useAction, useLoad } from "../load.js";
import { Button, Dialog } from "../ui/controls.js";
import { notify } from "../ui/feedback.js";
import { Preview } from "./sessions_preview.js";
import { Source } from "./sessions_source.js";

const IMPORT = "v1/sessions/import";
const PAUSE = 300; // after the last key of an option

/** onDone(domain, profile) is called after an import, with the first host of the document. */
export function ImportDialog({ profile = "default", onClose, onDone }) {
  const [source, setSource] = useState(null);
  const [options, setOptions] = useState({ profile, url: "", replace: false });
  const preview = usePreview(source, options);
  const store = useAction(async () => {
    const { result, etag } = preview.data;
    try {
      await sendDocument(source, options, { headers: { "if-match": etag } });
    } catch (error) {
      if (error.status === 412) preview.reload(); // somebody else changed the session
      throw error;
    }
    setSource(null); // the document is a login, so it is not kept
    notify(`${plural(result.records.length, "record")} imported.`);
    onClose();
    onDone(result.records[0]?.domain.replace(/^\./, ""), result.profile);
  });
  const isReady = preview.data && !preview.isLoading && preview.data.result.records.length > 0;
  const actions = html`<${Button} onClick=${onClose}>Cancel<//>
    ${source && html`<${Button} kind="primary" icon="upload" isBusy=${store.isBusy} disabled=${!isReady} onClick=${() => store.run()}>Import<//>`}`;
  return html`<${Dialog} wide title="Import a session" onClose=${onClose} actions=${actions}>
    ${source
      ? html`<${Preview} ...${{ source, options, setOptions, preview }} error=${store.error} onBack=${() => setSource(null)} />`
      : html`<${Source} onSource=${setSource} />`}
  <//>`;
}

/** Asks the service what an import would do. The result has no values. */
function usePreview(source, options) {
  return useLoad(async (signal) => {
    if (!source) return null;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (signal.aborted) return null;
    const response = await sendDocument(source, options, { signal }, { dry_run: "true" });
    return { result: await response.json(), etag: response.headers.get("etag") };
  }, [source, options.profile, options.url, options.replace]);
}

function sendDocument(source, { profile, url, replace }, request, more = {}) {
  const query = { profile: profile.trim(), url: url.trim(), replace: replace ? "true" : "", ...more };
  return send("POST", IMPORT, { query, text: source.body, ...request });
}
