// The export of a session: as a download, or as a command for a terminal.

import { html, useState } from "../vendor/preact.js";
import { send, urlOf } from "../api.js";
import { useAction } from "../load.js";
import { Button, Checkbox, Choice, Dialog, SelectField, TextField } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Problem } from "../ui/feedback.js";
import { Text } from "../ui/text.js";
import { FORMATS } from "./sessions_formats.js";

const OPTIONS = Object.entries(FORMATS).map(([name, { title }]) => [name, title]);

export function ExportDialog({ domain, profile, onClose }) {
  const [format, setFormat] = useState("playwright");
  const [hasSubdomains, setSubdomains] = useState(false);
  const [url, setUrl] = useState(`https://${domain}/`);
  const { needsUrl, file } = FORMATS[format];
  const query = { format, profile, domain: hasSubdomains ? `.${domain}` : domain, url: needsUrl ? url : undefined };
  const [losses, setLosses] = useState([]);
  const { run, isBusy, error } = useAction(async () => {
    setLosses([]);
    const response = await send("GET", "v1/sessions/export", { query });
    save(await response.blob(), file);
    setLosses(JSON.parse(response.headers.get("gleanery-losses") ?? "[]"));
  });
  const actions = html`<${Button} onClick=${onClose}>Close<//>
    <${Button} kind="primary" icon="download" isBusy=${isBusy} onClick=${() => run()}>Download<//>`;
  return html`<${Dialog} title="Export session" onClose=${onClose} actions=${actions}>
    <p class="sessions-warning">The file contains a login. The audit log records each export with your name.</p>
    <${SelectField} label="Format" value=${format} onValue=${setFormat} options=${OPTIONS} />
    ${needsUrl && html`<${TextField} label="Page" hint="The format has the cookies of one page." type="url" value=${url} onValue=${setUrl} error=${error?.of?.("url")} />`}
    <${Checkbox} label="Include subdomains" checked=${hasSubdomains} onValue=${setSubdomains} />
    <${Command} query=${query} file=${file} />
    <${Problem} error=${error} />
    <${Losses} losses=${losses} />
  <//>`;
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // the browser reads it after the click
}

function Command({ query, file }) {
  const [tool, setTool] = useState("gleanery");
  const text = tool === "gleanery" ? gleaneryCommand(query, file) : curlCommand(query, file);
  return html`<div class="sessions-command">
    <div class="sessions-command-head">
      <${Choice} label="Command of" value=${tool} onValue=${setTool} options=${[["gleanery", "gleanery"], ["curl", "curl"]]} />
      <${CopyButton} text=${text} label="the command">Copy command<//>
    </div>
    <pre tabindex="0" aria-label="Command">${text}</pre>
  </div>`;
}

function gleaneryCommand({ format, profile, domain, url }, file) {
  const options = [`--format=${format}`, `--profile=${quote(profile)}`, url && `--url=${quote(url)}`, `--output=${file}`];
  return ["gleanery sessions export", quote(domain), ...options.filter(Boolean)].join(" ");
}

function curlCommand(query, file) {
  return `curl -H "Authorization: Bearer $GLEANERY_TOKEN" -o ${file} ${quote(urlOf("v1/sessions/export", query).href)}`;
}

/** Quotes a text for a shell. */
function quote(text) {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** What a format could not keep. */
export function Losses({ losses }) {
  if (!losses.length) return null;
  return html`<div class="sessions-losses">
    <h3>Not kept</h3>
    <ul>${losses.map((loss) => html`<li key=${loss}><${Text}>${loss}<//></li>`)}</ul>
  </div>`;
}
