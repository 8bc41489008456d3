// The export of a session, as a download or as a command, and the formats of session state.

import { html, useState } from "../vendor/preact.js";
import { save } from "../download.js";
import { useAction } from "../load.js";
import { Button, Checkbox, SelectField, TextField } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Dialog } from "../ui/dialog.js";
import { Problem } from "../ui/feedback.js";
import { Text } from "../ui/text.js";
import { quote } from "./export_dialog.js";

/** name: { title, file, needsUrl } */
export const FORMATS = {
  playwright: { title: "Playwright storage state", file: "storage_state.json" },
  netscape: { title: "cookies.txt (curl, wget, yt-dlp)", file: "cookies.txt" },
  extension: { title: "Browser extension JSON (Cookie-Editor)", file: "cookies.json" },
  puppeteer: { title: "Puppeteer" },
  selenium: { title: "Selenium" },
  scrapy: { title: "Scrapy" },
  cdp: { title: "Chrome DevTools Protocol" },
  har: { title: "HAR", file: "cookies.har" },
  curl: { title: "curl command", file: "curl.sh", needsUrl: true },
  cookie: { title: "Cookie header", file: "cookie.txt", needsUrl: true },
  "set-cookie": { title: "Set-Cookie headers", file: "set-cookie.txt", needsUrl: true },
};

export const OPTIONS = Object.entries(FORMATS).map(([name, { title }]) => [name, title]);

export function ExportDialog({ domain, profile, onClose }) {
  const [format, setFormat] = useState("playwright");
  const [hasSubdomains, setSubdomains] = useState(false);
  const [url, setUrl] = useState(`https://${domain}/`);
  const { needsUrl, file = `cookies.${format}.json` } = FORMATS[format];
  const query = { format, profile, domain: hasSubdomains ? `.${domain}` : domain, url: needsUrl ? url : undefined };
  const text = command(query, file);
  const [losses, setLosses] = useState([]);
  const { run, isBusy, error } = useAction(async () => {
    setLosses([]);
    const response = await save("v1/sessions/export", file, query);
    setLosses(JSON.parse(response.headers.get("gleanery-losses") ?? "[]"));
  });
  const actions = html`<${Button} onClick=${onClose}>Close<//>
    <${Button} kind="primary" icon="download" isBusy=${isBusy} onClick=${() => run()}>Download<//>`;
  return html`<${Dialog} title="Export session" onClose=${onClose} actions=${actions}>
    <p class="warning">The file contains a login. The audit log records each export with your name.</p>
    <${SelectField} label="Format" value=${format} onValue=${setFormat} options=${OPTIONS} />
    ${needsUrl && html`<${TextField} label="Page" hint="The format has the cookies of one page." type="url" value=${url} onValue=${setUrl} error=${error?.of?.("url")} />`}
    <${Checkbox} label="Include subdomains" checked=${hasSubdomains} onValue=${setSubdomains} />
    <div class="sessions-command">
      <div><h3>In a terminal</h3><${CopyButton} text=${text} label="the command">Copy command<//></div>
      <pre tabindex="0" aria-label="Command">${text}</pre>
    </div>
    <${Problem} error=${error} />
    <${Losses} losses=${losses} />
  <//>`;
}

/** Returns a command for a terminal. */
function command({ format, profile, domain, url }, file) {
  const options = [`--format=${format}`, `--profile=${quote(profile)}`, url && `--url=${quote(url)}`, `--output=${file}`];
  return [`gleanery sessions export ${quote(domain)}`, ...options.filter(Boolean)].join(" \\\n  ");
}

/** What a format could not keep. */
export function Losses({ losses }) {
  if (!losses.length) return null;
  return html`<div class="sessions-losses">
    <h3>Not kept</h3>
    <ul>${losses.map((loss) => html`<li key=${loss}><${Text}>${loss}<//></li>`)}</ul>
  </div>`;
}
